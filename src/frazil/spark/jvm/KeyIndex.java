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
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.zip.CRC32;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;

/**
 * Where the rows of a table are, by their keys: a cache of the table in a folder of this machine.
 *
 * <p>For each key it has the places of all its live rows, and perhaps of some that are deleted: to delete one of these again
 * changes nothing. Entries are in runs, each sorted, from the newest to the oldest. A run that is at least half as large as the
 * next older one is merged with it, so that there are few of them, and each entry is rewritten a few times in its life.
 *
 * <p>What is in the folder counts up to the last {@link #save}: a process that ends in between leaves files that the next one
 * deletes. A folder belongs to one process; within a process, to whoever opened it last. Whatever fails in the folder has it
 * emptied: the next one to use it builds the index anew.
 */
public final class KeyIndex implements Closeable {
  private static final int VERSION = 2;
  private static final String STATE = "state";
  private static final String FRESH_STATE = "state.new";
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
  private String lost = "";
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

  /** Why what was saved could not be used, if that is so and was not asked for yet. */
  public synchronized String lost() {
    String why = lost;
    lost = "";
    return why;
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
      discard();
      throw new Failed(folder, new IOException("it has numbered more files than it can"));
    }
    files.putAll(numbers);
    live.addAll(numbers.values());
    KeyBlocks.each(
        rows,
        numbers,
        replaces,
        block ->
            inFolder(
                () -> {
                  runs.add(0, KeyRun.written(freshRun(), block));
                  mergeRuns();
                }));
  }

  /** How many rows a task should read, so that the driver has room for what several tasks send at once. */
  public static long rowsOfTask(SparkSession session) {
    return KeyBlocks.Room.of(session).rowsOfTask();
  }

  /** Some keys, given as both halves of their hashes, in the order in which they are looked for. */
  public static LongBuffer sorted(Dataset<?> keys) {
    List<byte[]> blocks = new ArrayList<>();
    KeyBlocks.each(keys, new HashMap<>(), false, blocks::add);
    return KeyBlocks.inOrder(blocks);
  }

  /** Where rows with some keys are, which are sorted. */
  public synchronized Places find(LongBuffer wanted) {
    int count = wanted.limit() / KeyRun.LONGS;
    FoundPlaces found = new FoundPlaces(count);
    inFolder(
        () -> {
          BitSet replaced = new BitSet(count);
          for (KeyRun run : runs) {
            for (int number = replaced.nextClearBit(0); number < count; number = replaced.nextClearBit(number + 1)) {
              long high = wanted.get(number * KeyRun.LONGS);
              long low = wanted.get(number * KeyRun.LONGS + 1);
              for (long at = run.first(high, low); run.has(at, high, low); at++) {
                long place = run.place(at);
                if (live.contains(KeyRun.Place.file(place))) {
                  found.add(number, place);
                }
                replaced.set(number, replaced.get(number) || KeyRun.Place.replaces(place));
              }
            }
          }
        });
    return new Places(found, files);
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

  /** What goes wrong with the index: the disk is full, or there is not enough memory. It is then of no use. */
  public static class Failed extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Failed(Path folder, Throwable cause) {
      super("The key index in " + folder + " failed: " + (cause.getMessage() == null ? cause : cause.getMessage()), cause);
    }

    Failed(String message) {
      super(message);
    }
  }

  /** What was written before is not there any more. That is no reason against an index that is built anew. */
  public static final class Damaged extends Failed {
    private static final long serialVersionUID = 1L;

    Damaged(Path folder, Throwable cause) {
      super(folder, cause);
    }
  }

  private interface Step {
    void run() throws IOException;
  }

  private void inFolder(Step step) {
    if (!lock.isValid()) {
      throw new Failed("The key index in " + folder + " failed: another writer of this process has opened it");
    }
    try {
      step.run();
    } catch (IOException | RuntimeException | VirtualMachineError failed) {
      discard();
      throw failed instanceof KeyRun.Damaged ? new Damaged(folder, failed) : new Failed(folder, failed);
    }
  }

  @Override
  public void close() throws IOException {
    synchronized (OPEN) {
      OPEN.remove(folder, this);
      closeRuns();
      lock.close();
      lockFile.close();
    }
  }

  private void forgetAll() throws IOException {
    begin();
    Files.deleteIfExists(folder.resolve(STATE));
    deleteOthers();
  }

  /** Empties the folder, as far as that can be done. */
  private void discard() {
    begin();
    folder.resolve(STATE).toFile().delete();
    folder.resolve(FRESH_STATE).toFile().delete();
    deleteOthers();
  }

  private void begin() {
    closeRuns();
    files.clear();
    live.clear();
    state = "";
    nextFile = 0;
    changed = false;
  }

  /** Takes what was saved last. What cannot be read is forgotten: all of it can be made again. */
  private void loadSaved() {
    begin();
    try {
      load();
    } catch (IOException | RuntimeException unreadable) {
      begin();
      lost = unreadable.getMessage() == null ? unreadable.toString() : unreadable.getMessage();
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
    Path fresh = folder.resolve(FRESH_STATE);
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
      throw new IOException("its state is not whole");
    }
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(whole))) {
      int version = in.readInt();
      if (version != VERSION) {
        throw new IOException("another version of frazil wrote it, in format " + version + " instead of " + VERSION);
      }
      String text = readText(in);
      nextFile = in.readInt();
      if (nextFile > KeyRun.Place.MOST_FILES / 2) {
        throw new IOException("it has numbered many files, and not many more can be");
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
      KeyRun newer = runs.get(0);
      KeyRun older = runs.get(1);
      KeyRun both = KeyRun.merged(freshRun(), newer, older, live::contains);
      runs.set(1, both);
      runs.remove(0);
      for (KeyRun merged : List.of(newer, older)) {
        merged.close();
        if (!saved.contains(merged.file)) {
          Files.deleteIfExists(merged.file);
        }
      }
    }
  }

  private Path freshRun() {
    Path file;
    do {
      file = folder.resolve(nextRun++ + RUN);
    } while (Files.exists(file));
    return file;
  }

  private void closeRuns() {
    for (KeyRun run : runs) {
      try {
        run.close();
      } catch (IOException unusual) {
        // Nothing was written to it.
      }
    }
    runs.clear();
  }

  /** Deletes the files of runs that were merged into others, or that were never saved. What cannot be deleted is in nobody's way. */
  private void deleteOthers() {
    saved.clear();
    runs.forEach(run -> saved.add(run.file));
    try (DirectoryStream<Path> held = Files.newDirectoryStream(folder, "*" + RUN)) {
      for (Path file : held) {
        if (!saved.contains(file)) {
          file.toFile().delete();
        }
      }
    } catch (IOException | DirectoryIteratorException unlisted) {
      // They are deleted another time.
    }
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
