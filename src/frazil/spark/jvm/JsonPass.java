package frazil;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.spark.unsafe.types.UTF8String;

/** One message, and how far it has been read. */
final class JsonPass {
  // What Jackson refuses by itself is far above these.
  private static final int LONGEST_KEY = 1 << 12;
  private static final int MOST_NUMBER_CHARACTERS = 200;

  // A variant has 38 digits for a decimal.
  private static final int MOST_TEXT_DIGITS = 30;
  private static final int MOST_LONG_DIGITS = 18;

  // Integers up to here are one double each; beyond, the careful reader looks twice.
  private static final double EXACT_DOUBLE = 1L << 53;
  private static final long EXACT_FLOAT = 1L << 24;

  // The powers of ten that are doubles: one operation on two exact doubles is rounded once, as it should be.
  private static final double[] POWERS = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18
  };

  private final byte[] text;
  private int at;

  // The number that was read last.
  private int from;
  private int digits;
  private int scale;
  private long unscaled;
  private boolean isNegative;
  private boolean isInteger;
  private boolean isShort;

  JsonPass(byte[] text) {
    this.text = text;
  }

  void require(boolean isPlain) {
    if (!isPlain) {
      throw NotPlain.IT;
    }
  }

  /** The message from its beginning to its end. */
  Object whole(JsonRows.Kind kind) {
    space();
    Object read = kind.read(this);
    space();
    require(at == text.length);
    return read;
  }

  /** The byte that comes next, or -1 at the end, which is no byte of an ASCII character. */
  private int next() {
    return at < text.length ? text[at] : -1;
  }

  private void space() {
    while (at < text.length && (text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t')) {
      at++;
    }
  }

  void expect(int sign) {
    require(next() == sign);
    at++;
  }

  /** After an opening bracket: whether there is nothing in it. The pass is behind the closing one then. */
  boolean ends(int bracket) {
    space();
    if (next() != bracket) {
      return false;
    }
    at++;
    return true;
  }

  /** After a value: whether another one comes. Otherwise the pass is behind the closing bracket. */
  boolean goesOn(int bracket) {
    space();
    int sign = next();
    at++;
    if (sign == ',') {
      space();
      return true;
    }
    require(sign == bracket);
    return false;
  }

  /** Whether the key that comes next is this one. The pass is at its value then. */
  boolean isKey(byte[] name) {
    int begin = at + 1;
    int end = begin + name.length;
    if (end >= text.length
        || text[at] != '"'
        || text[end] != '"'
        || !Arrays.equals(text, begin, end, name, 0, name.length)) {
      return false;
    }
    at = end + 1;
    colon();
    return true;
  }

  UTF8String key() {
    UTF8String name = string();
    require(name.numBytes() <= LONGEST_KEY);
    colon();
    return name;
  }

  private void colon() {
    space();
    expect(':');
    space();
  }

  Object value(JsonRows.Kind kind) {
    if (next() == 'n') {
      word("null");
      return null;
    }
    return kind.read(this);
  }

  /** Goes over a value of a key that nobody asked for. It must be plain nevertheless. */
  void skip(int depth) {
    require(depth <= JsonRows.DEEPEST);
    switch (next()) {
      case '"' -> string();
      case 't' -> word("true");
      case 'f' -> word("false");
      case 'n' -> word("null");
      case '{' -> {
        at++;
        if (!ends('}')) {
          do {
            key();
            skip(depth + 1);
          } while (goesOn('}'));
        }
      }
      case '[' -> {
        at++;
        if (!ends(']')) {
          do {
            skip(depth + 1);
          } while (goesOn(']'));
        }
      }
      default -> scan();
    }
  }

  private void word(String word) {
    require(at + word.length() <= text.length);
    for (int place = 0; place < word.length(); place++) {
      require(text[at + place] == word.charAt(place));
    }
    at += word.length();
  }

  boolean truth() {
    boolean isTrue = next() == 't';
    word(isTrue ? "true" : "false");
    return isTrue;
  }

  // Texts.

  UTF8String string() {
    expect('"');
    int begin = at;
    while (at < text.length) {
      byte one = text[at];
      if (one == '"') {
        return UTF8String.fromBytes(text, begin, at++ - begin);
      } else if (one == '\\') {
        return escaped(begin);
      } else if (one < 0) {
        at = behindCharacter(at);
      } else {
        require(one >= ' ');
        at++;
      }
    }
    throw NotPlain.IT;
  }

  /** The rest of a text from its first escape on, with what stands before. An escape is never shorter than what it means. */
  private UTF8String escaped(int begin) {
    byte[] made = new byte[Math.max(64, 2 * (at - begin))];
    int length = at - begin;
    System.arraycopy(text, begin, made, 0, length);
    while (at < text.length) {
      if (made.length - length < 4) {
        made = Arrays.copyOf(made, 2 * made.length);
      }
      byte one = text[at];
      if (one == '"') {
        at++;
        return UTF8String.fromBytes(made, 0, length);
      } else if (one == '\\') {
        length = putCharacter(escape(), made, length);
      } else if (one < 0) {
        int end = behindCharacter(at);
        while (at < end) {
          made[length++] = text[at++];
        }
      } else {
        require(one >= ' ');
        made[length++] = one;
        at++;
      }
    }
    throw NotPlain.IT;
  }

  /** The character that an escape means; of two halves, both. */
  private int escape() {
    at++;
    int sign = next();
    at++;
    return switch (sign) {
      case '"', '\\', '/' -> sign;
      case 'b' -> '\b';
      case 'f' -> '\f';
      case 'n' -> '\n';
      case 'r' -> '\r';
      case 't' -> '\t';
      case 'u' -> {
        int half = hexadecimal();
        if (half < Character.MIN_SURROGATE || half > Character.MAX_SURROGATE) {
          yield half;
        }
        require(half <= Character.MAX_HIGH_SURROGATE);
        expect('\\');
        expect('u');
        int other = hexadecimal();
        require(other >= Character.MIN_LOW_SURROGATE && other <= Character.MAX_LOW_SURROGATE);
        yield Character.toCodePoint((char) half, (char) other);
      }
      default -> throw NotPlain.IT;
    };
  }

  private int hexadecimal() {
    int code = 0;
    for (int place = 0; place < 4; place++) {
      int digit = Character.digit((char) next(), 16);
      require(digit >= 0 && next() > 0);
      code = 16 * code + digit;
      at++;
    }
    return code;
  }

  private static int putCharacter(int code, byte[] made, int length) {
    if (code < 0x80) {
      made[length++] = (byte) code;
    } else if (code < 0x800) {
      made[length++] = (byte) (0xC0 | code >> 6);
      made[length++] = (byte) (0x80 | code & 0x3F);
    } else if (code < 0x10000) {
      made[length++] = (byte) (0xE0 | code >> 12);
      made[length++] = (byte) (0x80 | code >> 6 & 0x3F);
      made[length++] = (byte) (0x80 | code & 0x3F);
    } else {
      made[length++] = (byte) (0xF0 | code >> 18);
      made[length++] = (byte) (0x80 | code >> 12 & 0x3F);
      made[length++] = (byte) (0x80 | code >> 6 & 0x3F);
      made[length++] = (byte) (0x80 | code & 0x3F);
    }
    return length;
  }

  /** Where a character of several bytes ends, as Unicode's table of well-formed ones has it. */
  private int behindCharacter(int place) {
    int first = text[place] & 0xFF;
    if (first < 0xE0) {
      require(first >= 0xC2);
      return continued(place + 1, 1, 0x80, 0xBF);
    } else if (first < 0xF0) {
      return continued(place + 1, 2, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    }
    require(first <= 0xF4);
    return continued(place + 1, 3, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
  }

  private int continued(int place, int count, int least, int most) {
    require(place + count <= text.length);
    int second = text[place] & 0xFF;
    require(second >= least && second <= most);
    for (int more = 1; more < count; more++) {
      require((text[place + more] & 0xC0) == 0x80);
    }
    return place + count;
  }

  byte[] base64() {
    byte[] letters = string().getBytes();
    require(letters.length % 4 == 0);
    try {
      return Base64.getDecoder().decode(letters);
    } catch (IllegalArgumentException none) {
      throw NotPlain.IT;
    }
  }

  // Numbers.

  /** Reads a number. What comes behind it is for the caller to look at. */
  private void scan() {
    from = at;
    isNegative = next() == '-';
    if (isNegative) {
      at++;
    }
    digits = 0;
    unscaled = 0;
    isShort = true;
    int first = at;
    digits();
    require(at == first + 1 || at > first && text[first] != '0');
    int places = 0;
    isInteger = true;
    if (next() == '.') {
      at++;
      places = at;
      digits();
      places = at - places;
      require(places > 0);
      isInteger = false;
    }
    scale = places;
    if (next() == 'e' || next() == 'E') {
      // What an exponent does is for Java's own reader of numbers.
      isShort = false;
      isInteger = false;
      at++;
      if (next() == '-' || next() == '+') {
        at++;
      }
      int exponent = at;
      digits();
      require(at > exponent);
      scale = -1;
    }
    require(at - from <= MOST_NUMBER_CHARACTERS);
  }

  private void digits() {
    while (at < text.length && text[at] >= '0' && text[at] <= '9') {
      if (digits < MOST_LONG_DIGITS) {
        unscaled = 10 * unscaled + (text[at] - '0');
      } else {
        isShort = false;
      }
      digits++;
      at++;
    }
  }

  private String written() {
    return new String(text, from, at - from, StandardCharsets.ISO_8859_1);
  }

  long integer(long least, long most) {
    scan();
    require(isInteger);
    long value = isNegative ? -unscaled : unscaled;
    if (!isShort) {
      try {
        value = Long.parseLong(written());
      } catch (NumberFormatException tooLarge) {
        throw NotPlain.IT;
      }
    }
    require(value >= least && value <= most);
    return value;
  }

  double number() {
    scan();
    double value;
    if (isShort && unscaled < EXACT_DOUBLE && scale < POWERS.length) {
      // An integer has no negative zero, and a fraction has.
      value = unscaled / POWERS[scale];
      value = isNegative && (!isInteger || unscaled != 0) ? -value : value;
    } else {
      require(!isInteger);
      value = Double.parseDouble(written());
    }
    require(Math.abs(value) < EXACT_DOUBLE);
    return value;
  }

  float smallNumber() {
    scan();
    if (isInteger) {
      require(isShort && unscaled <= EXACT_FLOAT);
      return isNegative ? -unscaled : unscaled;
    }
    float value = Float.parseFloat(written());
    require(Math.abs(value) < EXACT_DOUBLE);
    return value;
  }

  /** The text of a variant. */
  UTF8String asText() {
    int sign = next();
    if (sign == '"') {
      return string();
    }
    if (sign == 't' || sign == 'f') {
      return UTF8String.fromString(truth() ? "true" : "false");
    }
    scan();
    require(scale >= 0 && digits <= MOST_TEXT_DIGITS);
    int end = at;
    if (!isInteger) {
      while (text[end - 1] == '0') {
        end--;
      }
      if (text[end - 1] == '.') {
        end--;
      }
    }
    // There is no negative zero.
    boolean isZero = isNegative && end == from + 2 && text[from + 1] == '0';
    int begin = isZero ? from + 1 : from;
    return UTF8String.fromBytes(text, begin, end - begin);
  }

  /** Ends the reading of a message. Nobody looks at where it came from. */
  static final class NotPlain extends RuntimeException {
    private static final long serialVersionUID = 1L;
    static final NotPlain IT = new NotPlain();

    private NotPlain() {
      super(null, null, false, false);
    }
  }
}
