package frazil;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;

/** For each key the last time that it was deleted; times are above zero. A table with open addressing, at most half full. */
final class KeyTimes implements Serializable {
  private static final long serialVersionUID = 1L;
  private static final long MIX = 0x9E3779B97F4A7C15L;
  private static final int FIRST_BITS = 4;

  private transient int shift = Long.SIZE - FIRST_BITS;
  private transient long[] keys = new long[1 << FIRST_BITS];
  private transient long[] times = new long[1 << FIRST_BITS];
  private transient int size;
  private transient long ofNull;

  /** The last time that a key was deleted, or zero. */
  long time(long key) {
    return times[place(key)];
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
        grow();
        at = place(key);
      }
      size++;
      keys[at] = key;
    }
    times[at] = Math.max(times[at], time);
  }

  void add(KeyTimes other) {
    putNull(other.ofNull);
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

  private void grow() {
    long[] oldKeys = keys;
    long[] oldTimes = times;
    shift--;
    keys = new long[2 * oldKeys.length];
    times = new long[2 * oldTimes.length];
    for (int old = 0; old < oldKeys.length; old++) {
      if (oldTimes[old] != 0) {
        int at = place(oldKeys[old]);
        keys[at] = oldKeys[old];
        times[at] = oldTimes[old];
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
    int bits = FIRST_BITS;
    while (1L << bits < 2L * count) {
      bits++;
    }
    shift = Long.SIZE - bits;
    keys = new long[1 << bits];
    times = new long[1 << bits];
    for (int number = 0; number < count; number++) {
      put(in.readLong(), in.readLong());
    }
  }
}
