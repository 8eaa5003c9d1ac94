package frazil;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.io.CloseableIterable;

/**
 * The data files whose rows can differ between two snapshots of a table: those that only one of them has, and those in which
 * other rows are deleted.
 */
public final class ChangedFiles {
  private final List<FileScanTask> removed = new ArrayList<>();
  private final List<FileScanTask> added = new ArrayList<>();
  private final List<FileScanTask> before = new ArrayList<>();
  private final List<FileScanTask> after = new ArrayList<>();
  private final List<FileScanTask> restored = new ArrayList<>();

  private ChangedFiles() {}

  /** Compares the files of two snapshots, in whatever order they came. */
  public static ChangedFiles between(Table table, long from, long to) throws IOException {
    ChangedFiles changed = new ChangedFiles();
    BaseDeleteLoader loader = new BaseDeleteLoader(file -> table.io().newInputFile(file));
    Map<String, FileScanTask> then = new HashMap<>();
    try (CloseableIterable<FileScanTask> planned = table.newScan().useSnapshot(from).planFiles()) {
      planned.forEach(task -> then.put(task.file().location(), task));
    }
    try (CloseableIterable<FileScanTask> planned = table.newScan().useSnapshot(to).planFiles()) {
      for (FileScanTask now : planned) {
        FileScanTask earlier = then.remove(now.file().location());
        if (earlier == null) {
          changed.added.add(now);
        } else {
          changed.compare(loader, earlier, now);
        }
      }
    }
    changed.removed.addAll(then.values());
    return changed;
  }

  private void compare(BaseDeleteLoader loader, FileScanTask earlier, FileScanTask now) {
    Set<Deletes> then = Deletes.of(earlier);
    Set<Deletes> since = Deletes.of(now);
    if (then.equals(since)) {
      return;
    }
    after.add(now);
    if (then.isEmpty()) {
      return;
    }
    before.add(earlier);
    if (!since.containsAll(then) && !covers(loader, earlier, now)) {
      restored.add(earlier);
    }
  }

  /** Whether all rows that were deleted are certainly deleted still, though not by the same files. */
  private static boolean covers(BaseDeleteLoader loader, FileScanTask earlier, FileScanTask now) {
    Set<Deletes> since = Deletes.of(now);
    if (!since.containsAll(Deletes.of(equalities(earlier)))) {
      return false;
    }
    PositionDeleteIndex left = positions(loader, now);
    boolean[] all = {true};
    positions(loader, earlier).forEach(at -> all[0] &= left.isDeleted(at));
    return all[0];
  }

  private static List<DeleteFile> equalities(FileScanTask task) {
    return task.deletes().stream().filter(file -> file.content() == FileContent.EQUALITY_DELETES).toList();
  }

  private static PositionDeleteIndex positions(BaseDeleteLoader loader, FileScanTask task) {
    List<DeleteFile> files =
        task.deletes().stream().filter(file -> file.content() == FileContent.POSITION_DELETES).toList();
    return files.isEmpty()
        ? PositionDeleteIndex.empty()
        : loader.loadPositionDeletes(files, task.file().location());
  }

  /** What identifies a file of deletes, or a vector in a file of several. */
  private record Deletes(String location, Long offset) {
    static Set<Deletes> of(FileScanTask task) {
      return of(task.deletes());
    }

    static Set<Deletes> of(List<DeleteFile> files) {
      return files.stream().map(file -> new Deletes(file.location(), file.contentOffset())).collect(Collectors.toSet());
    }
  }

  /** Files that only the first snapshot has, with the deletes that they had there. */
  public List<FileScanTask> removed() {
    return removed;
  }

  /** Files that only the second snapshot has. */
  public List<FileScanTask> added() {
    return added;
  }

  /** Files of both whose deletes differ, as they were in the first: only those that had deletes there. */
  public List<FileScanTask> before() {
    return before;
  }

  /** All files of both whose deletes differ, as they are in the second. */
  public List<FileScanTask> after() {
    return after;
  }

  /** Those of {@link #before()} in which a row may be alive again. */
  public List<FileScanTask> restored() {
    return restored;
  }
}
