package frazil;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.lang.ref.SoftReference;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import org.roaringbitmap.longlong.Roaring64NavigableMap;
import scala.jdk.javaapi.CollectionConverters;

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
   * Reads the deleted keys.
   *
   * @param keys rows of a key and the file that deletes it
   * @param deletes the files of the keys
   */
  public static Keys gather(Dataset<?> keys, String deletes) {
    JavaRDD<InternalRow> rows = keys.queryExecution().toRdd().toJavaRDD();
    List<byte[]> parts = rows.mapPartitions(new Gather(Files.of(deletes))).collect();
    ByteBuffer all = ByteBuffer.allocate(parts.stream().mapToInt(part -> part.length).sum());
    parts.forEach(all::put);
    return new Keys(all.array());
  }

  /**
   * Looks every row up whose key lies between two.
   *
   * @param rows a key, the file that holds it and the position in the file, of a table
   * @param files the files of the rows
   * @return null when the table's files cannot be read as columns
   */
  public static Found find(Keys keys, Dataset<?> rows, String files, long least, long most) {
    List<SparkPlan> leaves = CollectionConverters.asJava(rows.queryExecution().executedPlan().collectLeaves());
    if (leaves.size() != 1 || !leaves.get(0).supportsColumnar()) {
      return null;
    }
    SparkPlan scan = leaves.get(0);
    Columns columns = Columns.of(rows.columns(), scan);
    JavaSparkContext context = JavaSparkContext.fromSparkContext(rows.sparkSession().sparkContext());
    Broadcast<byte[]> everywhere = context.broadcast(keys.packed);
    try {
      Found sum = new Found();
      LookUp lookUp = new LookUp(Files.of(files), everywhere, columns, least, most);
      scan.executeColumnar().toJavaRDD().mapPartitions(lookUp).collect().forEach(some -> sum.add((Found) unpacked(some)));
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

    /**
     * For each part of a file with dead rows: the file's number, how many bytes follow, and a portable bitmap of 64 bits.
     *
     * @return in Base64, since Python takes bytes from Java one at a time, and text as a whole
     */
    public String positions() throws IOException {
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      for (Positions part : positions) {
        out.writeInt(part.file());
        out.writeInt(part.bitmap().length);
        out.write(part.bitmap());
      }
      return Base64.getEncoder().encodeToString(bytes.toByteArray());
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

  /** The deleted keys, file by file, as they were read. */
  public static final class Keys {
    // By the number of their broadcast: the tasks of a process share them, as long as any needs them.
    private static final Map<Long, SoftReference<Keys>> SHARED = new HashMap<>();

    private final byte[] packed;
    private final Map<Integer, Optional<KeyTimes>> scopes = new ConcurrentHashMap<>();

    private Keys(byte[] packed) {
      this.packed = packed;
    }

    /** The least and the greatest of them but for null; nothing when there is no other. */
    public long[] range() {
      long least = Long.MAX_VALUE;
      long most = Long.MIN_VALUE;
      boolean any = false;
      for (Part part : Part.all(packed)) {
        for (int number = 0; number < part.keys.limit(); number++) {
          any = true;
          least = Math.min(least, part.keys.get(number));
          most = Math.max(most, part.keys.get(number));
        }
      }
      return any ? new long[] {least, most} : new long[0];
    }

    static synchronized void forget(Broadcast<byte[]> packed) {
      SHARED.remove(packed.id());
    }

    static synchronized Keys shared(Broadcast<byte[]> packed) {
      SoftReference<Keys> known = SHARED.get(packed.id());
      Keys keys = known == null ? null : known.get();
      if (keys == null) {
        keys = new Keys(packed.value());
        SHARED.values().removeIf(one -> one.get() == null);
        SHARED.put(packed.id(), new SoftReference<>(keys));
      }
      return keys;
    }

    /** Those of a scope, put in order by the first that asks for them; null when no key of it was deleted. */
    KeyTimes of(int scope) {
      return scopes.computeIfAbsent(scope, this::ordered).orElse(null);
    }

    private Optional<KeyTimes> ordered(int scope) {
      KeyTimes found = new KeyTimes();
      boolean any = false;
      for (Part part : Part.all(packed)) {
        if (part.scope != scope) {
          continue;
        }
        any = true;
        if (part.hasNull) {
          found.putNull(part.time);
        }
        for (int number = 0; number < part.keys.limit(); number++) {
          found.put(part.keys.get(number), part.time);
        }
      }
      return any ? Optional.of(found) : Optional.empty();
    }
  }

  /** The keys of one file, but for null. */
  private record Part(int scope, long time, boolean hasNull, LongBuffer keys) {
    static byte[] packed(int scope, long time, boolean hasNull, long[] keys, int count) {
      ByteBuffer out = ByteBuffer.allocate(Integer.BYTES + Long.BYTES + 1 + Integer.BYTES + Long.BYTES * count);
      out.putInt(scope).putLong(time).put((byte) (hasNull ? 1 : 0)).putInt(count);
      out.asLongBuffer().put(keys, 0, count);
      return out.array();
    }

    /** Those of many files, each packed behind another. */
    static List<Part> all(byte[] packed) {
      List<Part> parts = new ArrayList<>();
      ByteBuffer in = ByteBuffer.wrap(packed);
      while (in.hasRemaining()) {
        int scope = in.getInt();
        long time = in.getLong();
        boolean hasNull = in.get() != 0;
        int bytes = Long.BYTES * in.getInt();
        parts.add(new Part(scope, time, hasNull, in.slice(in.position(), bytes).asLongBuffer()));
        in.position(in.position() + bytes);
      }
      return parts;
    }
  }

  private record Gather(Files files) implements FlatMapFunction<Iterator<InternalRow>, byte[]> {
    private static final int FIRST_LENGTH = 1024;

    @Override
    public Iterator<byte[]> call(Iterator<InternalRow> rows) {
      List<byte[]> found = new ArrayList<>();
      UTF8String path = null;
      int file = -1;
      boolean hasNull = false;
      long[] keys = new long[FIRST_LENGTH];
      int count = 0;
      while (rows.hasNext()) {
        InternalRow row = rows.next();
        UTF8String held = row.getUTF8String(1);
        if (!held.equals(path)) {
          keep(found, file, hasNull, keys, count);
          path = held.copy();
          file = files.number(path);
          hasNull = false;
          count = 0;
        }
        if (row.isNullAt(0)) {
          hasNull = true;
        } else {
          keys = count < keys.length ? keys : Arrays.copyOf(keys, 2 * count);
          keys[count++] = row.getLong(0);
        }
      }
      keep(found, file, hasNull, keys, count);
      return found.iterator();
    }

    private void keep(List<byte[]> found, int file, boolean hasNull, long[] keys, int count) {
      if (file >= 0) {
        found.add(Part.packed(files.scopes()[file], files.times()[file], hasNull, keys, count));
      }
    }
  }

  /** Where a batch of the scan has what is asked for. */
  private record Columns(int key, boolean isInt, int file, int position) implements Serializable {
    static Columns of(String[] names, SparkPlan scan) {
      List<String> held = new ArrayList<>();
      CollectionConverters.asJava(scan.output()).forEach(one -> held.add(one.name()));
      int key = held.indexOf(names[0]);
      boolean isInt = scan.output().apply(key).dataType().equals(DataTypes.IntegerType);
      return new Columns(key, isInt, held.indexOf(names[1]), held.indexOf(names[2]));
    }
  }

  private record LookUp(Files files, Broadcast<byte[]> deleted, Columns columns, long least, long most)
      implements FlatMapFunction<Iterator<ColumnarBatch>, byte[]> {
    // As the function xxhash64 of Spark begins, and where it stays for null.
    private static final long SEED = 42;

    @Override
    public Iterator<byte[]> call(Iterator<ColumnarBatch> batches) {
      Found found = new Found();
      Keys keys = Keys.shared(deleted);
      Roaring64NavigableMap dead = new Roaring64NavigableMap();
      int number = -1;
      while (batches.hasNext()) {
        ColumnarBatch batch = batches.next();
        if (batch.numRows() == 0) {
          continue;
        }
        int file = files.number(fileOf(batch));
        if (file != number) {
          keep(found, number, dead);
          dead = new Roaring64NavigableMap();
          number = file;
        }
        int scope = files.scopes()[file];
        lookUp(batch, keys.of(0), scope == 0 ? null : keys.of(scope), files.times()[file], found, dead);
      }
      keep(found, number, dead);
      return List.of(packed(found)).iterator();
    }

    private UTF8String fileOf(ColumnarBatch batch) {
      UTF8String first = batch.column(columns.file()).getUTF8String(0);
      if (!first.equals(batch.column(columns.file()).getUTF8String(batch.numRows() - 1))) {
        throw new IllegalStateException("rows of several files are read at once");
      }
      return first;
    }

    private void lookUp(
        ColumnarBatch batch, KeyTimes everywhere, KeyTimes here, long came, Found found, Roaring64NavigableMap dead) {
      ColumnVector column = batch.column(columns.key());
      ColumnVector positions = batch.column(columns.position());
      boolean isInt = columns.isInt();
      for (int at = 0; at < batch.numRows(); at++) {
        boolean isNull = column.isNullAt(at);
        long key = isNull ? 0 : isInt ? column.getInt(at) : column.getLong(at);
        if (!isNull && (key < least || key > most)) {
          continue;
        }
        long hash = isNull ? SEED : isInt ? XXH64.hashInt((int) key, SEED) : XXH64.hashLong(key, SEED);
        found.seen(hash);
        if (time(everywhere, isNull, key) > came || time(here, isNull, key) > came) {
          found.dead(hash);
          dead.addLong(positions.getLong(at));
        }
      }
    }

    private static long time(KeyTimes keys, boolean isNull, long key) {
      return keys == null ? 0 : isNull ? keys.timeOfNull() : keys.time(key);
    }

    private static void keep(Found found, int number, Roaring64NavigableMap dead) {
      if (!dead.isEmpty()) {
        found.positions.add(Positions.of(number, dead));
      }
    }
  }
}
