package frazil;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;

/**
 * For each key the last time that it was deleted; times are above zero. A table with open addressing, at most half full.
 *
 * <p>Most keys that are asked for are not there. A filter, which is small enough to stay near the processor, knows so of most of
 * them: one bit for each of sixteen or more values of the hash to a key.
 */
final class KeyTimes implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long MIX = 0x9E3779B97F4A7C15L;
  private static final int FIRST_BITS = 4;
  private static final int FILTER_BITS = 3;

  private transient int shift;
  private transient long[] keys;
  private transient long[] times;
  private transient long[] filter;
  private transient int size;
  private transient long ofNull;

  KeyTimes() {
    allocate(FIRST_BITS);
  }

  /** The last time that a key was deleted, or zero. */
  long time(long key) {
    int bit = bit(key);
    return (filter[bit >>> 6] & 1L << bit) == 0 ? 0 : times[place(key)];
  }

  long timeOfNull() {
    return ofNull;
  }

  void putNull(long time) {
    ofNull = Math.max(ofNull, time);
  }

  void put(long key, long time) {
    int at = place(key);
    if (times[at] == 0) {
      if (2 * size >= keys.length) {
        reserve(size + 1);
        at = place(key);
      }
      size++;
      keys[at] = key;
      int bit = bit(key);
      filter[bit >>> 6] |= 1L << bit;
    }
    times[at] = Math.max(times[at], time);
  }

  /** Adds all keys of another. They come in the order of their hashes, which would crowd the first places of a smaller table. */
  void add(KeyTimes other) {
    putNull(other.ofNull);
    reserve(size + other.size);
    for (int at = 0; at < other.keys.length; at++) {
      if (other.times[at] != 0) {
        put(other.keys[at], other.times[at]);
      }
    }
  }

  /** Where the key is, or else the free place where it would be. */
  private int place(long key) {
    int last = keys.length - 1;
    int at = (int) (key * MIX >>> shift);
    while (times[at] != 0 && keys[at] != key) {
      at = at + 1 & last;
    }
    return at;
  }

  private int bit(long key) {
    return (int) (key * MIX >>> shift - FILTER_BITS);
  }

  private void allocate(int bits) {
    shift = Long.SIZE - bits;
    keys = new long[1 << bits];
    times = new long[1 << bits];
    filter = new long[Math.max(1, 1 << bits + FILTER_BITS - 6)];
    size = 0;
  }

  /** Makes room for so many keys. */
  private void reserve(int count) {
    int bits = Long.SIZE - shift;
    while (1L << bits < 2L * count) {
      bits++;
    }
    if (1L << bits == keys.length) {
      return;
    }
    long[] oldKeys = keys;
    long[] oldTimes = times;
    allocate(bits);
    for (int old = 0; old < oldKeys.length; old++) {
      if (oldTimes[old] != 0) {
        put(oldKeys[old], oldTimes[old]);
      }
    }
  }

  private void writeObject(ObjectOutputStream out) throws IOException {
    out.writeLong(ofNull);
    out.writeInt(size);
    for (int at = 0; at < keys.length; at++) {
      if (times[at] != 0) {
        out.writeLong(keys[at]);
        out.writeLong(times[at]);
      }
    }
  }

  private void readObject(ObjectInputStream in) throws IOException {
    ofNull = in.readLong();
    int count = in.readInt();
    allocate(FIRST_BITS);
    reserve(count);
    for (int number = 0; number < count; number++) {
      put(in.readLong(), in.readLong());
    }
  }
}
