package frazil;

import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.storage.StorageLevel;

/** Brings the keys that tasks have packed to the driver, in blocks that are sorted, and so many at a time as it has room for. */
final class KeyBlocks {
  private KeyBlocks() {}

  /**
   * The room for what tasks send: an eighth of the driver's heap, where it is twice for a moment, and not more than Spark allows.
   *
   * @param most how many entries there may be at once
   */
  record Room(long most, int tasks, long rowsOfTask) {
    private static final long FEW_ROWS = 1 << 20;
    // A task sorts its rows in memory.
    private static final long MANY_ROWS = 1 << 22;

    static Room of(SparkSession session) {
      long allowed = session.sparkContext().conf().getSizeAsBytes("spark.driver.maxResultSize", "1g");
      long heap = Runtime.getRuntime().maxMemory() / 8;
      long most = (allowed == 0 ? heap : Math.min(heap, allowed / 4 * 3)) / KeyRun.BYTES;
      int cores = Math.max(1, session.sparkContext().defaultParallelism());
      // Tasks do not get the same number of rows: there is room for twice as many.
      long rows = Math.max(1, Math.min(most / 2, Math.max(FEW_ROWS, Math.min(MANY_ROWS, most / cores / 2))));
      return new Room(most, (int) Math.max(1, Math.min(cores, most / 2 / rows)), rows);
    }
  }

  /** Takes the blocks of all tasks. Those of a task that has more than its share of the room come one by one. */
  static void each(Dataset<?> rows, HashMap<String, Integer> files, boolean replaces, Consumer<byte[]> take) {
    Room room = Room.of(rows.sparkSession());
    JavaRDD<InternalRow> read = rows.queryExecution().toRdd().toJavaRDD();
    long share = room.most / room.tasks;
    JavaRDD<byte[]> whole = read.mapPartitions(new PackedKeys.Packer(files, replaces, share, true));
    List<Integer> large = new ArrayList<>();
    for (List<Integer> some : inGroups(IntStream.range(0, read.getNumPartitions()).boxed().toList(), room.tasks)) {
      takeAll(whole, some, take, large);
    }
    if (large.isEmpty()) {
      return;
    }
    JavaRDD<byte[]> kept = read.mapPartitions(new PackedKeys.Packer(files, replaces, share, false));
    kept.persist(StorageLevel.DISK_ONLY());
    try {
      for (List<Integer> some : inGroups(large, room.tasks)) {
        List<Integer> left = some;
        for (int number = 0; !left.isEmpty(); number++) {
          List<Integer> ended = new ArrayList<>();
          takeAll(kept.mapPartitions(new Nth(number)), left, take, ended);
          left = left.stream().filter(partition -> !ended.contains(partition)).toList();
        }
      }
    } finally {
      kept.unpersist(false);
    }
  }

  /** Takes the blocks of some partitions, and notes those that have sent none, but for the sign for that. */
  private static void takeAll(JavaRDD<byte[]> blocks, List<Integer> some, Consumer<byte[]> take, List<Integer> without) {
    List<byte[]>[] found = blocks.collectPartitions(some.stream().mapToInt(Integer::intValue).toArray());
    for (int at = 0; at < found.length; at++) {
      if (found[at].size() == 1 && found[at].get(0).length == 0) {
        without.add(some.get(at));
      } else {
        found[at].forEach(take);
      }
      found[at] = null;
    }
  }

  private static List<List<Integer>> inGroups(List<Integer> partitions, int size) {
    return IntStream.iterate(0, from -> from < partitions.size(), from -> from + size)
        .mapToObj(from -> partitions.subList(from, Math.min(partitions.size(), from + size)))
        .toList();
  }

  /** One of the blocks of a task, or none when it has not so many. */
  private record Nth(int number) implements FlatMapFunction<Iterator<byte[]>, byte[]> {
    @Override
    public Iterator<byte[]> call(Iterator<byte[]> blocks) {
      for (int left = number; left > 0 && blocks.hasNext(); left--) {
        blocks.next();
      }
      return List.of(blocks.hasNext() ? blocks.next() : PackedKeys.NONE).iterator();
    }
  }

  /** The entries of blocks that are sorted, each by itself: there are as many as tasks, or a few more. */
  static LongBuffer inOrder(List<byte[]> blocks) {
    LongBuffer[] in = blocks.stream().map(block -> ByteBuffer.wrap(block).asLongBuffer()).toArray(LongBuffer[]::new);
    LongBuffer all = LongBuffer.allocate(Arrays.stream(in).mapToInt(LongBuffer::limit).sum());
    while (all.hasRemaining()) {
      LongBuffer least = null;
      for (LongBuffer one : in) {
        if (one.hasRemaining() && (least == null || one.get(one.position()) < least.get(least.position()))) {
          least = one;
        }
      }
      all.put(least.get()).put(least.get()).put(least.get());
    }
    return all.flip();
  }
}
