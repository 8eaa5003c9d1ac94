package frazil;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.lang.ref.SoftReference;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/**
 * Finds the rows whose key was deleted after they came: one pass over the deleted keys, which are kept in memory, and one over
 * the rows, which also sums them up.
 *
 * <p>A key is one number. Rows come file after file; each file of keys and of rows has a time at which it came, and a scope: keys
 * of scope 0 are deleted everywhere, those of another in the files of that scope alone.
 */
public final class DeadRows {
  private DeadRows() {}

  /**
   * Looks every row up.
   *
   * @param keys rows of a key and the file that deletes it
   * @param deletes the files of the keys
   * @param rows rows of a key, its hash, the file that holds it and the position in the file
   * @param files the files of the rows
   */
  public static Found find(Dataset<?> keys, String deletes, Dataset<?> rows, String files) {
    Keys all = new Keys();
    internal(keys).mapPartitions(new Gather(Files.of(deletes))).collect().forEach(some -> all.add((Keys) unpacked(some)));
    JavaSparkContext context = JavaSparkContext.fromSparkContext(rows.sparkSession().sparkContext());
    Broadcast<byte[]> everywhere = context.broadcast(packed(all));
    try {
      Found sum = new Found();
      JavaRDD<byte[]> parts = internal(rows).mapPartitions(new LookUp(Files.of(files), everywhere));
      parts.collect().forEach(some -> sum.add((Found) unpacked(some)));
      return sum;
    } finally {
      Keys.forget(everywhere);
      everywhere.destroy();
    }
  }

  // What goes from task to driver and back is bytes: whoever told Spark to serialize in another way has not told it of these.

  private static byte[] packed(Serializable value) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(value);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    return bytes.toByteArray();
  }

  private static Object unpacked(byte[] bytes) {
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      return in.readObject();
    } catch (IOException | ClassNotFoundException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private static JavaRDD<InternalRow> internal(Dataset<?> frame) {
    return frame.queryExecution().toRdd().toJavaRDD();
  }

  /** How many rows there were, how many of them are dead, their hashes in one number each, and where the dead ones are. */
  public static final class Found implements Serializable {
    private static final long serialVersionUID = 1L;

    private long rows;
    private long hash;
    private long deadRows;
    private long deadHash;
    private final List<Positions> positions = new ArrayList<>();

    /** All four numbers. */
    public long[] numbers() {
      return new long[] {rows, hash, deadRows, deadHash};
    }

    /** For each part of a file with dead rows: the file's number, how many bytes follow, and a portable bitmap of 64 bits. */
    public byte[] positions() throws IOException {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      for (Positions part : positions) {
        out.writeInt(part.file());
        out.writeInt(part.bitmap().length);
        out.write(part.bitmap());
      }
      return bytes.toByteArray();
    }

    private void add(Found other) {
      rows += other.rows;
      hash ^= other.hash;
      deadRows += other.deadRows;
      deadHash ^= other.deadHash;
      positions.addAll(other.positions);
    }

    private void seen(long hashed) {
      rows++;
      hash ^= hashed;
    }

    private void dead(long hashed) {
      deadRows++;
      deadHash ^= hashed;
    }
  }

  private record Positions(int file, byte[] bitmap) implements Serializable {
    static Positions of(int file, Roaring64NavigableMap found) {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      try {
        found.runOptimize();
        found.serializePortable(new DataOutputStream(bytes));
      } catch (IOException impossible) {
        throw new IllegalStateException(impossible);
      }
      return new Positions(file, bytes.toByteArray());
    }
  }

  /** When each file came, and its scope. They are told as `time scope path`, with a zero byte between two. */
  private record Files(Map<UTF8String, Integer> numbers, long[] times, int[] scopes) implements Serializable {
    static Files of(String told) {
      String[] each = told.isEmpty() ? new String[0] : told.split("\0", -1);
      Files made = new Files(new HashMap<>(), new long[each.length], new int[each.length]);
      for (int number = 0; number < each.length; number++) {
        String[] parts = each[number].split(" ", 3);
        made.times[number] = Long.parseLong(parts[0]);
        made.scopes[number] = Integer.parseInt(parts[1]);
        made.numbers.put(UTF8String.fromString(parts[2]), number);
      }
      return made;
    }

    int number(UTF8String path) {
      Integer number = numbers.get(path);
      if (number == null) {
        throw new IllegalStateException("a file is read that the snapshot does not have: " + path);
      }
      return number;
    }
  }

  /** The deleted keys of each scope. */
  private static final class Keys implements Serializable {
    private static final long serialVersionUID = 1L;

    // By the number of their broadcast: the tasks of a process share them, as long as any needs them.
    private static final Map<Long, SoftReference<Keys>> SHARED = new HashMap<>();

    private final Map<Integer, KeyTimes> scopes = new HashMap<>();

    static synchronized void forget(Broadcast<byte[]> packed) {
      SHARED.remove(packed.id());
    }

    static synchronized Keys shared(Broadcast<byte[]> packed) {
      SoftReference<Keys> known = SHARED.get(packed.id());
      Keys keys = known == null ? null : known.get();
      if (keys == null) {
        keys = (Keys) unpacked(packed.value());
        SHARED.values().removeIf(one -> one.get() == null);
        SHARED.put(packed.id(), new SoftReference<>(keys));
      }
      return keys;
    }

    KeyTimes of(int scope) {
      return scopes.computeIfAbsent(scope, any -> new KeyTimes());
    }

    /** None when no key of the scope was deleted. */
    KeyTimes known(int scope) {
      return scopes.get(scope);
    }

    void add(Keys other) {
      other.scopes.forEach((scope, keys) -> of(scope).add(keys));
    }
  }

  private record Gather(Files files) implements FlatMapFunction<Iterator<InternalRow>, byte[]> {
    @Override
    public Iterator<byte[]> call(Iterator<InternalRow> rows) {
      Keys found = new Keys();
      UTF8String path = null;
      KeyTimes keys = null;
      long time = 0;
      while (rows.hasNext()) {
        InternalRow row = rows.next();
        UTF8String held = row.getUTF8String(1);
        if (!held.equals(path)) {
          path = held.copy();
          int number = files.number(path);
          time = files.times()[number];
          keys = found.of(files.scopes()[number]);
        }
        if (row.isNullAt(0)) {
          keys.putNull(time);
        } else {
          keys.put(row.getLong(0), time);
        }
      }
      return List.of(packed(found)).iterator();
    }
  }

  private record LookUp(Files files, Broadcast<byte[]> deleted) implements FlatMapFunction<Iterator<InternalRow>, byte[]> {
    @Override
    public Iterator<byte[]> call(Iterator<InternalRow> rows) {
      Found found = new Found();
      Keys keys = Keys.shared(deleted);
      KeyTimes everywhere = keys.known(0);
      KeyTimes here = null;
      Roaring64NavigableMap dead = new Roaring64NavigableMap();
      UTF8String path = null;
      int number = -1;
      long came = 0;
      while (rows.hasNext()) {
        InternalRow row = rows.next();
        UTF8String held = row.getUTF8String(2);
        if (!held.equals(path)) {
          keep(found, number, dead);
          dead = new Roaring64NavigableMap();
          path = held.copy();
          number = files.number(path);
          came = files.times()[number];
          int scope = files.scopes()[number];
          here = scope == 0 ? null : keys.known(scope);
        }
        long hash = row.getLong(1);
        found.seen(hash);
        if (isDeleted(everywhere, row, came) || isDeleted(here, row, came)) {
          found.dead(hash);
          dead.addLong(row.getLong(3));
        }
      }
      keep(found, number, dead);
      return List.of(packed(found)).iterator();
    }

    private static boolean isDeleted(KeyTimes keys, InternalRow row, long came) {
      return keys != null && (row.isNullAt(0) ? keys.timeOfNull() : keys.time(row.getLong(0))) > came;
    }

    private static void keep(Found found, int number, Roaring64NavigableMap dead) {
      if (!dead.isEmpty()) {
        found.positions.add(Positions.of(number, dead));
      }
    }
  }
}
