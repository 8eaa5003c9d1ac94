package frazil;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/** How often this Java has asked catalogs and stores, by kind, since it began to count. */
public final class Requests {
  private static final long SINCE = System.currentTimeMillis();
  private static final Map<String, LongAdder> COUNTS = new ConcurrentHashMap<>();

  private Requests() {}

  /** One more of a kind that a {@code catalog} or a {@code store} was asked. */
  public static void count(String whom, String kind) {
    COUNTS.computeIfAbsent(whom + " " + kind, name -> new LongAdder()).increment();
  }

  /** When counting began, in milliseconds, and a line for each kind: whom, kind, count. */
  public static String report() {
    StringBuilder text = new StringBuilder().append(SINCE);
    new TreeMap<>(COUNTS).forEach((name, count) -> text.append('\n').append(name).append(' ').append(count.sum()));
    return text.toString();
  }
}
