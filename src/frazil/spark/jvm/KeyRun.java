package frazil;

import java.io.BufferedOutputStream;
import java.io.Closeable;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.function.IntPredicate;
import java.util.zip.CRC32C;

/**
 * A file of entries that are sorted by their keys, and never changed.
 *
 * <p>An entry is three numbers: the two halves of its key's hash, and the place of a row that has the key. Entries are in blocks
 * of a page each, with a checksum that is verified whenever a block is read. At the end of the file is the first hash of each
 * block; these are in memory while the run is open, so that one read finds a key.
 */
final class KeyRun implements Closeable {
  static final int LONGS = 3;
  static final int BYTES = LONGS * Long.BYTES;

  private static final int BLOCK_BYTES = 1 << 12;
  // Behind the entries of a block are its number and its checksum.
  private static final int SUM_AT = BLOCK_BYTES - Long.BYTES;
  private static final int NUMBER_AT = SUM_AT - Long.BYTES;
  private static final int ENTRIES = NUMBER_AT / BYTES;
  private static final int BUFFERED = 1 << 18;

  final Path file;
  final long count;
  private final RandomAccessFile in;
  private final long[] first;
  private final byte[] block = new byte[BLOCK_BYTES];
  private final LongBuffer numbers = ByteBuffer.wrap(block).asLongBuffer();
  private int loaded = -1;

  private KeyRun(Path file, long count, RandomAccessFile in, long[] first) {
    this.file = file;
    this.count = count;
    this.in = in;
    this.first = first;
  }

  /** A file that cannot be read, or that is not what was written. */
  static final class Damaged extends IOException {
    private static final long serialVersionUID = 1L;

    Damaged(Path file, String why) {
      super(file.getFileName() + " " + why);
    }

    Damaged(Path file, IOException cause) {
      super(file.getFileName() + " cannot be read: " + cause.getMessage(), cause);
    }
  }

  /** Opens a file that has so many entries. */
  static KeyRun open(Path file, long count) throws Damaged {
    try {
      RandomAccessFile in = new RandomAccessFile(file.toFile(), "r");
      try {
        return new KeyRun(file, count, in, firstHashes(file, count, in));
      } catch (IOException | RuntimeException failed) {
        in.close();
        throw failed;
      }
    } catch (Damaged damaged) {
      throw damaged;
    } catch (IOException failed) {
      throw new Damaged(file, failed);
    }
  }

  private static long[] firstHashes(Path file, long count, RandomAccessFile in) throws IOException {
    int blocks = Math.toIntExact((count + ENTRIES - 1) / ENTRIES);
    byte[] bytes = new byte[Math.multiplyExact(blocks + 1, Long.BYTES)];
    if (in.length() != (long) blocks * BLOCK_BYTES + bytes.length) {
      throw new Damaged(file, "does not have the size that it was written with");
    }
    in.seek((long) blocks * BLOCK_BYTES);
    in.readFully(bytes);
    LongBuffer read = ByteBuffer.wrap(bytes).asLongBuffer();
    if (read.get(blocks) != checksum(bytes, blocks * Long.BYTES)) {
      throw new Damaged(file, "is not what was written: the checksum of its hashes is another");
    }
    long[] first = new long[blocks];
    read.get(first);
    return first;
  }

  @Override
  public void close() throws IOException {
    in.close();
  }

  /** Writes entries that are sorted and packed. */
  static KeyRun written(Path file, byte[] entries) throws IOException {
    try (Writer writer = new Writer(file)) {
      LongBuffer packed = ByteBuffer.wrap(entries).asLongBuffer();
      while (packed.hasRemaining()) {
        writer.add(packed.get(), packed.get(), packed.get());
      }
      return writer.finished();
    }
  }

  /**
   * Merges two runs into a new one. Entries of the newer come before those of the older with the same key, which are left out
   * where a newer one replaces them; so are those of files that are gone.
   */
  static KeyRun merged(Path file, KeyRun newer, KeyRun older, IntPredicate isLive) throws IOException {
    try (Writer writer = new Writer(file)) {
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
          writer.add(from.high(at), from.low(at), place);
        }
      }
      return writer.finished();
    }
  }

  long high(long at) throws Damaged {
    return get(at, 0);
  }

  long low(long at) throws Damaged {
    return get(at, 1);
  }

  long place(long at) throws Damaged {
    return get(at, 2);
  }

  boolean has(long at, long high, long low) throws Damaged {
    return at < count && high(at) == high && low(at) == low;
  }

  /** Where the first entry stands that is not below a key. */
  long first(long high, long low) throws Damaged {
    // The last block that begins below the key; if the next one begins with it, this one may still end with it.
    long from = (long) Math.max(0, blocksBelow(high) - 1) * ENTRIES;
    long to = Math.min(count, from + ENTRIES);
    while (from < to) {
      long middle = from + to >>> 1;
      if (isBelow(middle, high, low)) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    // Hardly ever are there several keys with the same first half.
    while (from < count && isBelow(from, high, low)) {
      from++;
    }
    return from;
  }

  /** How many blocks begin below half a hash. */
  private int blocksBelow(long high) {
    int from = 0;
    int to = first.length;
    while (from < to) {
      int middle = from + to >>> 1;
      if (first[middle] < high) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  private boolean isBelow(long at, long high, long low) throws Damaged {
    long here = high(at);
    return here < high || here == high && low(at) < low;
  }

  private int compare(long at, KeyRun other, long there) throws Damaged {
    int order = Long.compare(high(at), other.high(there));
    return order != 0 ? order : Long.compare(low(at), other.low(there));
  }

  private long get(long at, int number) throws Damaged {
    int wanted = (int) (at / ENTRIES);
    if (wanted != loaded) {
      load(wanted);
    }
    return numbers.get((int) (at % ENTRIES) * LONGS + number);
  }

  private void load(int wanted) throws Damaged {
    loaded = -1;
    try {
      in.seek((long) wanted * BLOCK_BYTES);
      in.readFully(block);
    } catch (IOException failed) {
      throw new Damaged(file, failed);
    }
    if (numbers.get(SUM_AT / Long.BYTES) != checksum(block, SUM_AT) || numbers.get(NUMBER_AT / Long.BYTES) != wanted) {
      throw new Damaged(file, "is not what was written: the checksum of block " + wanted + " is another");
    }
    loaded = wanted;
  }

  private static long checksum(byte[] bytes, int length) {
    CRC32C sum = new CRC32C();
    sum.update(bytes, 0, length);
    return sum.getValue();
  }

  /** Writes a new file, entry by entry in their order. */
  private static final class Writer implements Closeable {
    private final Path file;
    private final FileDescriptor descriptor;
    private final OutputStream out;
    private final byte[] block = new byte[BLOCK_BYTES];
    private final ByteBuffer entries = ByteBuffer.wrap(block);
    private long[] first = new long[1];
    private int blocks;
    private long count;

    Writer(Path file) throws IOException {
      if (Files.exists(file)) {
        throw new FileAlreadyExistsException(file.toString());
      }
      FileOutputStream to = new FileOutputStream(file.toFile());
      this.file = file;
      descriptor = to.getFD();
      out = new BufferedOutputStream(to, BUFFERED);
    }

    void add(long high, long low, long place) throws IOException {
      if (entries.position() == 0) {
        if (blocks == first.length) {
          first = Arrays.copyOf(first, 2 * blocks);
        }
        first[blocks] = high;
      }
      entries.putLong(high).putLong(low).putLong(place);
      count++;
      if (entries.position() == NUMBER_AT) {
        endBlock();
      }
    }

    KeyRun finished() throws IOException {
      if (entries.position() > 0) {
        endBlock();
      }
      ByteBuffer hashes = ByteBuffer.allocate((blocks + 1) * Long.BYTES);
      hashes.asLongBuffer().put(first, 0, blocks);
      out.write(hashes.putLong(blocks * Long.BYTES, checksum(hashes.array(), blocks * Long.BYTES)).array());
      out.flush();
      descriptor.sync();
      return open(file, count);
    }

    private void endBlock() throws IOException {
      Arrays.fill(block, entries.position(), NUMBER_AT, (byte) 0);
      entries.putLong(NUMBER_AT, blocks++);
      entries.putLong(SUM_AT, checksum(block, SUM_AT));
      out.write(block);
      entries.clear();
    }

    @Override
    public void close() throws IOException {
      out.close();
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
