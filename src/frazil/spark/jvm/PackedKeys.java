package frazil;

import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** The keys of rows, packed by the tasks that read them: sorted entries, as a run has them. */
final class PackedKeys {
  // So many entries are sorted at a time: their order takes two thirds of the memory that they take themselves.
  private static final int BLOCK = 1 << 20;
  private static final int NUMBER_BITS = 20;
  /** A block that is sent in place of others. */
  static final byte[] NONE = {};

  private static final int FIRST_LENGTH = 1 << 12;

  private long[] entries = new long[FIRST_LENGTH * KeyRun.LONGS];
  private int count;

  void add(long high, long low, long place) {
    int at = count * KeyRun.LONGS;
    if (at == entries.length) {
      entries = Arrays.copyOf(entries, 2 * at);
    }
    entries[at] = high;
    entries[at + 1] = low;
    entries[at + 2] = place;
    count++;
  }

  /** The entries in the order of their keys; what is added next begins another block. */
  byte[] sorted() {
    // By the upper bits of the hash, with the number of the entry in place of the lower ones.
    long[] order = new long[count];
    for (int number = 0; number < count; number++) {
      order[number] = entries[number * KeyRun.LONGS] >> NUMBER_BITS << NUMBER_BITS | number;
    }
    Arrays.sort(order);
    int[] numbers = new int[count];
    for (int at = 0; at < count; at++) {
      int number = (int) (order[at] & BLOCK - 1);
      // The few whose upper bits are the same are put in order one by one.
      int to = at;
      while (to > 0 && isBelow(number, numbers[to - 1])) {
        numbers[to] = numbers[--to];
      }
      numbers[to] = number;
    }
    byte[] packed = new byte[count * KeyRun.BYTES];
    LongBuffer out = ByteBuffer.wrap(packed).asLongBuffer();
    for (int number : numbers) {
      out.put(entries, number * KeyRun.LONGS, KeyRun.LONGS);
    }
    count = 0;
    return packed;
  }

  private boolean isBelow(int one, int other) {
    for (int part = 0; part < KeyRun.LONGS; part++) {
      int order = Long.compare(entries[one * KeyRun.LONGS + part], entries[other * KeyRun.LONGS + part]);
      if (order != 0) {
        return order < 0;
      }
    }
    return false;
  }

  /**
   * Packs rows of a key's two halves, its file and the position there; or of the two halves alone, which have no place.
   *
   * @param most how many entries a block may have at most; if they are sent {@code atOnce}, so many all of them, else none
   */
  record Packer(Map<String, Integer> files, boolean replaces, long most, boolean atOnce)
      implements FlatMapFunction<Iterator<InternalRow>, byte[]> {
    @Override
    public Iterator<byte[]> call(Iterator<InternalRow> rows) {
      Iterator<byte[]> blocks = new Blocks(this, rows);
      if (!atOnce) {
        return blocks;
      }
      List<byte[]> all = new ArrayList<>();
      for (long left = most; blocks.hasNext(); ) {
        byte[] block = blocks.next();
        left -= block.length / KeyRun.BYTES;
        if (left < 0) {
          return List.of(NONE).iterator();
        }
        all.add(block);
      }
      return all.iterator();
    }
  }

  /** The blocks of some rows, each made when it is asked for. */
  private static final class Blocks implements Iterator<byte[]> {
    private final Iterator<InternalRow> rows;
    private final boolean replaces;
    private final long size;
    private final Map<UTF8String, Integer> numbers = new HashMap<>();
    private final PackedKeys block = new PackedKeys();
    private UTF8String path;
    private int file = -1;

    Blocks(Packer packer, Iterator<InternalRow> rows) {
      this.rows = rows;
      replaces = packer.replaces;
      size = Math.min(BLOCK, Math.max(1, packer.most));
      packer.files.forEach((path, number) -> numbers.put(UTF8String.fromString(path), number));
    }

    @Override
    public boolean hasNext() {
      return rows.hasNext();
    }

    @Override
    public byte[] next() {
      while (rows.hasNext() && block.count < size) {
        InternalRow row = rows.next();
        block.add(row.getLong(0), row.getLong(1), numbers.isEmpty() ? 0 : placeOf(row));
      }
      return block.sorted();
    }

    private long placeOf(InternalRow row) {
      UTF8String here = row.getUTF8String(2);
      if (!here.equals(path)) {
        path = here.copy();
        file = numberOf(path);
      }
      return KeyRun.Place.of(file, row.getLong(3), replaces);
    }

    private int numberOf(UTF8String path) {
      Integer number = numbers.get(path);
      if (number == null) {
        throw new IllegalStateException("a file is read that was not asked for: " + path);
      }
      return number;
    }
  }
}
