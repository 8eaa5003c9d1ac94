package frazil;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32;
import org.apache.spark.api.java.JavaRDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/**
 * Where the rows of a table are, by their keys: a cache of the table in a folder of this machine.
 *
 * <p>For each key it has the places of all its live rows, and perhaps of some that are deleted: to delete one of these again
 * changes nothing. Entries are in runs, each sorted, from the newest to the oldest. A run that is at least half as large as the
 * next older one is merged with it, so that there are few of them, and each entry is rewritten a few times in its life.
 *
 * <p>What is in the folder counts up to the last {@link #save}: a process that ends in between leaves files that the next one
 * deletes. A folder belongs to one process; within a process, to whoever opened it last.
 */
public final class KeyIndex implements Closeable {
  private static final int VERSION = 1;
  private static final String STATE = "state";
  private static final String LOCK = "lock";
  private static final String RUN = ".run";
  private static final Map<Path, KeyIndex> OPEN = new HashMap<>();

  private final Path folder;
  private final FileChannel lockFile;
  private final FileLock lock;
  private final Map<String, Integer> files = new HashMap<>();
  private final Set<Integer> live = new HashSet<>();
  private final List<KeyRun> runs = new ArrayList<>();
  private final Set<Path> saved = new HashSet<>();
  private String state = "";
  private boolean changed;
  private int nextFile;
  private long nextRun;

  private KeyIndex(Path folder, FileChannel lockFile, FileLock lock) {
    this.folder = folder;
    this.lockFile = lockFile;
    this.lock = lock;
  }

  /**
   * Opens the index in a folder, which is made when it is missing.
   *
   * @return null when another process has it
   */
  public static KeyIndex open(String name) {
    synchronized (OPEN) {
      try {
        return opened(Files.createDirectories(Path.of(name)).toRealPath());
      } catch (IOException failed) {
        throw new Failed(Path.of(name), failed);
      }
    }
  }

  private static KeyIndex opened(Path folder) throws IOException {
    KeyIndex other = OPEN.get(folder);
    if (other != null) {
      other.close();
    }
    FileChannel lockFile = FileChannel.open(folder.resolve(LOCK), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    FileLock lock = lockFile.tryLock();
    if (lock == null) {
      lockFile.close();
      return null;
    }
    KeyIndex index = new KeyIndex(folder, lockFile, lock);
    OPEN.put(folder, index);
    index.loadSaved();
    return index;
  }

  /** What was saved with the entries; empty when there are none. What was begun since then, and not saved, is undone. */
  public synchronized String state() {
    if (changed) {
      inFolder(this::loadSaved);
    }
    return state;
  }

  /** How many entries there are, and how many bytes they take on the disk. */
  public synchronized long[] size() {
    long entries = runs.stream().mapToLong(run -> run.count).sum();
    return new long[] {entries, entries * KeyRun.BYTES, runs.size()};
  }

  /** Forgets everything. */
  public synchronized void clear() {
    inFolder(this::forgetAll);
  }

  /** The files whose rows it has. */
  public synchronized Set<String> files() {
    return new HashSet<>(files.keySet());
  }

  /** Leaves out all rows of some files. */
  public synchronized void remove(Collection<String> gone) {
    changed = true;
    gone.forEach(path -> live.remove(files.remove(path)));
  }

  /**
   * Adds the rows of some files.
   *
   * @param rows both halves of a key's hash, the file and the position in it
   * @param replaces whether no row with one of these keys that came before is left
   */
  public synchronized void add(Dataset<?> rows, Collection<String> paths, boolean replaces) {
    changed = true;
    HashMap<String, Integer> numbers = new HashMap<>();
    paths.forEach(path -> numbers.put(path, nextFile++));
    if (nextFile > KeyRun.Place.MOST_FILES) {
      throw new Failed(folder, new IOException("it has numbered more files than it can"));
    }
    JavaRDD<byte[]> blocks = packed(rows, numbers, replaces);
    int partitions = blocks.getNumPartitions();
    int atOnce = Math.max(1, rows.sparkSession().sparkContext().defaultParallelism());
    files.putAll(numbers);
    live.addAll(numbers.values());
    for (int first = 0; first < partitions; first += atOnce) {
      int from = first;
      int[] some = new int[Math.min(atOnce, partitions - first)];
      Arrays.setAll(some, number -> from + number);
      for (List<byte[]> found : blocks.collectPartitions(some)) {
        for (byte[] block : found) {
          inFolder(
              () -> {
                runs.add(0, KeyRun.written(freshRun(), block));
                mergeRuns();
              });
        }
      }
    }
  }

  /** Some keys, given as both halves of their hashes, in the order in which they are looked for. */
  public static LongBuffer sorted(Dataset<?> keys) {
    return inOrder(packed(keys, new HashMap<>(), false).collect());
  }

  /** Where rows with some keys are, which are sorted. */
  public synchronized Places find(LongBuffer wanted) {
    inFolder(() -> {});
    int count = wanted.limit() / KeyRun.LONGS;
    Map<Integer, Roaring64NavigableMap> found = new HashMap<>();
    BitSet replaced = new BitSet(count);
    for (KeyRun run : runs) {
      for (int number = replaced.nextClearBit(0); number < count; number = replaced.nextClearBit(number + 1)) {
        long high = wanted.get(number * KeyRun.LONGS);
        long low = wanted.get(number * KeyRun.LONGS + 1);
        for (long at = run.first(high, low); run.has(at, high, low); at++) {
          long place = run.place(at);
          if (live.contains(KeyRun.Place.file(place))) {
            Roaring64NavigableMap positions =
                found.computeIfAbsent(KeyRun.Place.file(place), file -> new Roaring64NavigableMap());
            positions.addLong(KeyRun.Place.position(place));
          }
          replaced.set(number, replaced.get(number) || KeyRun.Place.replaces(place));
        }
      }
    }
    Map<String, Roaring64NavigableMap> byPath = new HashMap<>();
    files.forEach(
        (path, number) -> {
          if (found.containsKey(number)) {
            byPath.put(path, found.get(number));
          }
        });
    return new Places(byPath);
  }

  /** Keeps what there is now, together with a text that says what it is. */
  public synchronized void save(String text) {
    inFolder(
        () -> {
          writeState(text);
          state = text;
          changed = false;
          deleteOthers();
        });
  }

  /** What goes wrong in the folder: the disk is full, a file is not what it was. The index is then of no use. */
  public static final class Failed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Failed(Path folder, IOException cause) {
      super("The key index in " + folder + " failed: " + cause.getMessage(), cause);
    }
  }

  private interface Step {
    void run() throws IOException;
  }

  private void inFolder(Step step) {
    try {
      if (!lock.isValid()) {
        throw new IOException("another writer of this process has opened it");
      }
      step.run();
    } catch (IOException failed) {
      throw new Failed(folder, failed);
    }
  }

  @Override
  public void close() throws IOException {
    synchronized (OPEN) {
      OPEN.remove(folder, this);
      lock.close();
      lockFile.close();
    }
  }

  private void forgetAll() throws IOException {
    begin();
    Files.deleteIfExists(folder.resolve(STATE));
    deleteOthers();
  }

  private void begin() {
    runs.clear();
    files.clear();
    live.clear();
    state = "";
    nextFile = 0;
    changed = false;
  }

  /** Takes what was saved last. What cannot be read is forgotten: all of it can be made again. */
  private void loadSaved() throws IOException {
    begin();
    try {
      load();
    } catch (IOException | RuntimeException unreadable) {
      begin();
    }
    deleteOthers();
  }

  private void writeState(String text) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeInt(VERSION);
      writeText(out, text);
      out.writeInt(nextFile);
      out.writeLong(nextRun);
      out.writeInt(files.size());
      for (Map.Entry<String, Integer> file : files.entrySet()) {
        out.writeInt(file.getValue());
        writeText(out, file.getKey());
      }
      out.writeInt(runs.size());
      for (KeyRun run : runs) {
        writeText(out, run.file.getFileName().toString());
        out.writeLong(run.count);
      }
    }
    byte[] content = bytes.toByteArray();
    ByteBuffer whole = ByteBuffer.allocate(content.length + Long.BYTES).put(content);
    whole.putLong(checksum(content, content.length)).flip();
    Path fresh = folder.resolve(STATE + ".new");
    try (FileChannel out =
        FileChannel.open(
            fresh, StandardOpenOption.CREATE, StandardOpenOption.TRUNCATE_EXISTING, StandardOpenOption.WRITE)) {
      while (whole.hasRemaining()) {
        out.write(whole);
      }
      out.force(false);
    }
    Files.move(fresh, folder.resolve(STATE), StandardCopyOption.ATOMIC_MOVE);
  }

  private void load() throws IOException {
    byte[] whole;
    try {
      whole = Files.readAllBytes(folder.resolve(STATE));
    } catch (NoSuchFileException none) {
      return;
    }
    int length = whole.length - Long.BYTES;
    if (length < 0 || ByteBuffer.wrap(whole).getLong(length) != checksum(whole, length)) {
      throw new IOException("the state of the index is not whole");
    }
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(whole))) {
      if (in.readInt() != VERSION) {
        throw new IOException("the index is of another version");
      }
      String text = readText(in);
      nextFile = in.readInt();
      if (nextFile > KeyRun.Place.MOST_FILES / 2) {
        throw new IOException("the index has numbered many files, and is built anew while there is time");
      }
      nextRun = in.readLong();
      for (int left = in.readInt(); left > 0; left--) {
        int number = in.readInt();
        files.put(readText(in), number);
        live.add(number);
      }
      for (int left = in.readInt(); left > 0; left--) {
        Path file = folder.resolve(readText(in));
        runs.add(KeyRun.open(file, in.readLong()));
      }
      state = text;
    }
  }

  private void mergeRuns() throws IOException {
    while (runs.size() > 1 && runs.get(0).count * 2 >= runs.get(1).count) {
      KeyRun newer = runs.remove(0);
      KeyRun older = runs.remove(0);
      runs.add(0, KeyRun.merged(freshRun(), newer, older, live::contains));
      for (KeyRun merged : List.of(newer, older)) {
        if (!saved.contains(merged.file)) {
          Files.delete(merged.file);
        }
      }
    }
  }

  private Path freshRun() {
    return folder.resolve(nextRun++ + RUN);
  }

  /** Deletes the files of runs that were merged into others, or that were never saved. */
  private void deleteOthers() throws IOException {
    saved.clear();
    runs.forEach(run -> saved.add(run.file));
    try (DirectoryStream<Path> held = Files.newDirectoryStream(folder, "*" + RUN)) {
      for (Path file : held) {
        if (!saved.contains(file)) {
          Files.delete(file);
        }
      }
    }
  }

  private static JavaRDD<byte[]> packed(Dataset<?> rows, HashMap<String, Integer> files, boolean replaces) {
    JavaRDD<InternalRow> read = rows.queryExecution().toRdd().toJavaRDD();
    return read.mapPartitions(new PackedKeys.Packer(files, replaces));
  }

  /** The entries of blocks that are sorted, each by itself: there are as many as tasks, or a few more. */
  private static LongBuffer inOrder(List<byte[]> blocks) {
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

  private static void writeText(DataOutputStream out, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  private static String readText(DataInputStream in) throws IOException {
    return new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
  }

  private static long checksum(byte[] bytes, int length) {
    CRC32 sum = new CRC32();
    sum.update(bytes, 0, length);
    return sum.getValue();
  }
}
