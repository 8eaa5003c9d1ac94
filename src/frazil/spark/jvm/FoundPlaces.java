package frazil;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.function.LongPredicate;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** The places that an index has for some numbered keys: mostly one for a key, and several where others have added rows. */
final class FoundPlaces {
  private static final long NONE = -1;
  private static final int FIRST_LENGTH = 16;

  final Map<Integer, Roaring64NavigableMap> positions = new HashMap<>();
  private final long[] first;
  // Pairs of a key's number and a place.
  private long[] others = new long[2 * FIRST_LENGTH];
  private int length;

  FoundPlaces(int keys) {
    first = new long[keys];
    Arrays.fill(first, NONE);
  }

  void add(int key, long place) {
    int file = KeyRun.Place.file(place);
    positions.computeIfAbsent(file, number -> new Roaring64NavigableMap()).addLong(KeyRun.Place.position(place));
    long plain = place & Long.MAX_VALUE;
    if (first[key] == NONE) {
      first[key] = plain;
      return;
    }
    if (length == others.length) {
      others = Arrays.copyOf(others, 2 * length);
    }
    others[length++] = key;
    others[length++] = plain;
  }

  /** How many keys have more than one place where something is so, and how many such places they have together. */
  long[] several(LongPredicate isSo) {
    int[] counts = new int[length == 0 ? 0 : first.length];
    for (int at = 0; at < length; at += 2) {
      int key = (int) others[at];
      if (first[key] != NONE) {
        counts[key] += isSo.test(first[key]) ? 1 : 0;
        first[key] = NONE;
      }
      counts[key] += isSo.test(others[at + 1]) ? 1 : 0;
    }
    return new long[] {
      Arrays.stream(counts).filter(count -> count > 1).count(),
      Arrays.stream(counts).filter(count -> count > 1).asLongStream().sum()
    };
  }
}
