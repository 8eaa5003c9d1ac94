package frazil;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.function.IntPredicate;

/**
 * A file of entries that are sorted by their keys. It is never changed, and read through the page cache of the system.
 *
 * <p>An entry is three numbers: the two halves of its key's hash, and the place of a row that has the key. Hashes are spread
 * evenly, so that it can be computed about where one stands.
 */
final class KeyRun {
  static final int LONGS = 3;
  static final int BYTES = LONGS * Long.BYTES;

  // A mapping has less than 2 GB.
  private static final int MAPPED = 64 << 20;
  private static final int BUFFERED = 1 << 14;
  private static final double RANGE = 0x1p64;
  private static final int GUESSES = 3;
  private static final int FIRST_STEP = 8;

  final Path file;
  final long count;
  private final LongBuffer[] mapped;

  private KeyRun(Path file, long count, LongBuffer[] mapped) {
    this.file = file;
    this.count = count;
    this.mapped = mapped;
  }

  /** Opens a file that has so many entries. */
  static KeyRun open(Path file, long count) throws IOException {
    if (Files.size(file) != count * BYTES) {
      throw new IOException(file + " does not have the size that it was written with");
    }
    try (FileChannel channel = FileChannel.open(file)) {
      LongBuffer[] mapped = new LongBuffer[(int) ((count + MAPPED - 1) / MAPPED)];
      for (int part = 0; part < mapped.length; part++) {
        long from = (long) part * MAPPED;
        long entries = Math.min(MAPPED, count - from);
        mapped[part] = channel.map(MapMode.READ_ONLY, from * BYTES, entries * BYTES).asLongBuffer();
      }
      return new KeyRun(file, count, mapped);
    }
  }

  /** Writes entries that are sorted and packed. */
  static KeyRun written(Path file, byte[] entries) throws IOException {
    try (FileChannel out = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
      writeAll(out, ByteBuffer.wrap(entries));
      out.force(false);
    }
    return open(file, entries.length / BYTES);
  }

  /**
   * Merges two runs into a new one. Entries of the newer come before those of the older with the same key, which are left out
   * where a newer one replaces them; so are those of files that are gone.
   */
  static KeyRun merged(Path file, KeyRun newer, KeyRun older, IntPredicate isLive) throws IOException {
    long written = 0;
    try (FileChannel out = FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
      ByteBuffer buffer = ByteBuffer.allocateDirect(BUFFERED * BYTES);
      long left = 0;
      long right = 0;
      while (left < newer.count || right < older.count) {
        int order = left == newer.count ? 1 : right == older.count ? -1 : newer.compare(left, older, right);
        KeyRun from = order <= 0 ? newer : older;
        long at = order <= 0 ? left++ : right++;
        long place = from.place(at);
        if (order <= 0 && Place.replaces(place)) {
          while (right < older.count && newer.compare(at, older, right) == 0) {
            right++;
          }
        }
        if (isLive.test(Place.file(place))) {
          buffer.putLong(from.high(at)).putLong(from.low(at)).putLong(place);
          written++;
          if (!buffer.hasRemaining()) {
            writeAll(out, buffer.flip());
            buffer.clear();
          }
        }
      }
      writeAll(out, buffer.flip());
      out.force(false);
    }
    return open(file, written);
  }

  long high(long at) {
    return get(at, 0);
  }

  long low(long at) {
    return get(at, 1);
  }

  long place(long at) {
    return get(at, 2);
  }

  boolean has(long at, long high, long low) {
    return at < count && high(at) == high && low(at) == low;
  }

  /** Where the first entry stands that is not below a key. */
  long first(long high, long low) {
    if (count == 0) {
      return 0;
    }
    long at = limited((high - (double) Long.MIN_VALUE) / RANGE * count);
    for (int guess = 1; guess < GUESSES; guess++) {
      at = limited(at + ((double) high - high(at)) / RANGE * count);
    }
    // Steps that double lead past it, and halves back to it.
    long from = at;
    long to = at;
    if (isBelow(at, high, low)) {
      for (long step = FIRST_STEP; to < count && isBelow(to, high, low); step *= 2) {
        from = to + 1;
        to = Math.min(count, to + step);
      }
    } else {
      for (long step = FIRST_STEP; from > 0 && !isBelow(from - 1, high, low); step *= 2) {
        to = from - 1;
        from = Math.max(0, from - step);
      }
    }
    while (from < to) {
      long middle = from + to >>> 1;
      if (isBelow(middle, high, low)) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  private long limited(double at) {
    return Math.max(0, Math.min(count - 1, (long) at));
  }

  private boolean isBelow(long at, long high, long low) {
    long here = high(at);
    return here < high || here == high && low(at) < low;
  }

  private int compare(long at, KeyRun other, long there) {
    int order = Long.compare(high(at), other.high(there));
    return order != 0 ? order : Long.compare(low(at), other.low(there));
  }

  private long get(long at, int number) {
    return mapped[(int) (at / MAPPED)].get((int) (at % MAPPED) * LONGS + number);
  }

  private static void writeAll(FileChannel out, ByteBuffer bytes) throws IOException {
    while (bytes.hasRemaining()) {
      out.write(bytes);
    }
  }

  /** The place of a row in one number: the number of its file, its position there, and whether it replaces earlier rows. */
  static final class Place {
    static final int MOST_FILES = 1 << 23;
    private static final int POSITION_BITS = 40;
    private static final long POSITIONS = (1L << POSITION_BITS) - 1;

    private Place() {}

    static long of(int file, long position, boolean replaces) {
      if (position > POSITIONS) {
        throw new IllegalStateException("a file has more rows than can be numbered: " + position);
      }
      return (replaces ? Long.MIN_VALUE : 0) | (long) file << POSITION_BITS | position;
    }

    static int file(long place) {
      return (int) ((place & Long.MAX_VALUE) >>> POSITION_BITS);
    }

    static long position(long place) {
      return place & POSITIONS;
    }

    static boolean replaces(long place) {
      return place < 0;
    }
  }
}
