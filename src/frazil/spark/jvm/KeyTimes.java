package frazil;

/**
 * For each key the last time that it was deleted; times are above zero. A table with open addressing, at most half full.
 *
 * <p>Most keys that are asked for are not there. A filter, which is small enough to stay near the processor, knows so of most of
 * them: one bit for each of sixteen or more values of the hash to a key.
 */
final class KeyTimes {
  private static final long MIX = 0x9E3779B97F4A7C15L;
  private static final int FIRST_BITS = 4;
  private static final int FILTER_BITS = 3;

  private int shift;
  private long[] keys;
  private long[] times;
  private long[] filter;
  private int size;
  private long ofNull;

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
        grow();
        at = place(key);
      }
      size++;
      keys[at] = key;
      int bit = bit(key);
      filter[bit >>> 6] |= 1L << bit;
    }
    times[at] = Math.max(times[at], time);
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

  private void grow() {
    long[] oldKeys = keys;
    long[] oldTimes = times;
    allocate(Long.SIZE - shift + 1);
    for (int old = 0; old < oldKeys.length; old++) {
      if (oldTimes[old] != 0) {
        put(oldKeys[old], oldTimes[old]);
      }
    }
  }
}
