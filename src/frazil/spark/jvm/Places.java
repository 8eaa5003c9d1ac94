package frazil;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileContent;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.TableUtil;
import org.apache.iceberg.data.BaseDeleteLoader;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.PositionDelete;
import org.apache.iceberg.deletes.PositionDeleteIndex;
import org.apache.iceberg.deletes.PositionDeleteWriter;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DeleteWriteResult;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.util.CharSequenceSet;
import org.apache.iceberg.util.ContentFileUtil;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** Rows of a table by the file that each is in and its position there, and how they are deleted. */
public final class Places {
  private static final int FIRST_WITH_VECTORS = 3;

  private final FoundPlaces found;
  private final Map<String, Roaring64NavigableMap> positions = new HashMap<>();
  private final Map<Integer, String> paths = new HashMap<>();
  private final Map<String, PositionDeleteIndex> before = new HashMap<>();

  Places(FoundPlaces found, Map<String, Integer> files) {
    this.found = found;
    files.forEach(
        (path, number) -> {
          if (found.positions.containsKey(number)) {
            positions.put(path, found.positions.get(number));
            paths.put(number, path);
          }
        });
  }

  /** The live data files of a table, by their paths, with the deletes that apply to them. */
  public static Map<String, FileScanTask> live(Table table) throws IOException {
    Map<String, FileScanTask> live = new HashMap<>();
    try (CloseableIterable<FileScanTask> planned = table.newScan().planFiles()) {
      planned.forEach(task -> live.put(task.file().location(), task));
    }
    return live;
  }

  /**
   * The live files that are not known yet, in the order in which they came.
   *
   * @param alone the sequence numbers of snapshots whose files replace all earlier rows with their keys
   */
  public static List<Group> fresh(Table table, Map<String, FileScanTask> live, Set<String> known, Collection<String> alone) {
    List<FileScanTask> fresh =
        live.entrySet().stream()
            .filter(one -> !known.contains(one.getKey()))
            .map(Map.Entry::getValue)
            .sorted(Comparator.comparing(Places::sequence))
            .toList();
    List<Group> groups = new ArrayList<>();
    Reader reader = new Reader(table);
    Long before = null;
    for (FileScanTask task : fresh) {
      Long sequence = sequence(task);
      boolean replaces = alone.contains(sequence.toString());
      Group last = groups.isEmpty() ? null : groups.get(groups.size() - 1);
      boolean together = last != null && last.replaces == replaces && (!replaces || sequence.equals(before));
      Group group = together ? last : new Group(replaces, new ArrayList<>());
      if (!together) {
        groups.add(group);
      }
      group.tasks.add(reader.whole(task));
      before = sequence;
    }
    return groups;
  }

  private static Long sequence(FileScanTask task) {
    Long sequence = task.file().fileSequenceNumber();
    return sequence == null ? 0 : sequence;
  }

  /** Files that are read together: those of one snapshot, whose rows replace earlier ones, or of several, whose rows do not. */
  public record Group(boolean replaces, List<FileScanTask> tasks) {
    public List<String> paths() {
      return tasks.stream().map(task -> task.file().location()).toList();
    }

    /** How many rows and bytes there are. */
    public long[] size() {
      return new long[] {
        tasks.stream().mapToLong(task -> task.file().recordCount()).sum(),
        tasks.stream().mapToLong(task -> task.file().fileSizeInBytes()).sum()
      };
    }
  }

  /** Makes tasks that read files whole, the deleted rows as well: no file of deletes is opened for that. */
  private static final class Reader {
    private final ResidualEvaluator all = ResidualEvaluator.unpartitioned(Expressions.alwaysTrue());
    private final Map<Integer, String> specs = new HashMap<>();
    private final String schema;

    Reader(Table table) {
      schema = SchemaParser.toJson(table.schema());
      table.specs().forEach((id, spec) -> specs.put(id, PartitionSpecParser.toJson(spec)));
    }

    FileScanTask whole(FileScanTask task) {
      return new BaseFileScanTask(task.file(), new DeleteFile[0], schema, specs.get(task.file().specId()), all);
    }
  }

  /** The files that they are in. */
  public Set<String> files() {
    return positions.keySet();
  }

  /** What reads the files that they are in, without the rows that are deleted. */
  public List<FileScanTask> tasks(Map<String, FileScanTask> live) {
    return positions.keySet().stream().map(live::get).toList();
  }

  /**
   * Writes files that delete the rows: vectors, which hold what was deleted before from the same data files, in the versions of
   * the table format that have them; else files of positions, one for each data file.
   */
  public DeleteWriteResult delete(Table table, Map<String, FileScanTask> live) throws IOException {
    return TableUtil.formatVersion(table) >= FIRST_WITH_VECTORS ? vectors(table, live) : files(table, live);
  }

  /**
   * How many keys have more than one row, and how many rows these are. Rows of files with equality deletes are not counted: it is
   * not known which of them live.
   */
  public long[] duplicates(Table table, Map<String, FileScanTask> live) {
    return found.several(
        place -> {
          String path = paths.get(KeyRun.Place.file(place));
          FileScanTask task = live.get(path);
          boolean isKnown = task.deletes().stream().noneMatch(file -> file.content() == FileContent.EQUALITY_DELETES);
          return isKnown && !deletedBefore(table, task).isDeleted(KeyRun.Place.position(place));
        });
  }

  private DeleteWriteResult vectors(Table table, Map<String, FileScanTask> live) throws IOException {
    OutputFileFactory outputs = OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
    BaseDVFileWriter writer = new BaseDVFileWriter(outputs, path -> previous(table, live.get(path)));
    try (writer) {
      for (Map.Entry<String, Roaring64NavigableMap> one : positions.entrySet()) {
        DataFile file = live.get(one.getKey()).file();
        one.getValue()
            .forEach(at -> writer.delete(one.getKey(), at, table.specs().get(file.specId()), file.partition()));
      }
    }
    return writer.result();
  }

  private PositionDeleteIndex previous(Table table, FileScanTask task) {
    PositionDeleteIndex deleted = deletedBefore(table, task);
    return deleted.isEmpty() ? null : deleted;
  }

  /** The positions that are deleted already, but for equality deletes, which stay as they are. */
  private PositionDeleteIndex deletedBefore(Table table, FileScanTask task) {
    return before.computeIfAbsent(
        task.file().location(),
        path -> {
          List<DeleteFile> deletes =
              task.deletes().stream().filter(file -> file.content() == FileContent.POSITION_DELETES).toList();
          return deletes.isEmpty() ? PositionDeleteIndex.empty() : loader(table).loadPositionDeletes(deletes, path);
        });
  }

  private static BaseDeleteLoader loader(Table table) {
    return new BaseDeleteLoader(file -> table.io().newInputFile(file));
  }

  /**
   * A file for each data file, with what such a file had before. Its partition is that of the data file, whatever type the column of
   * it has by now.
   */
  private DeleteWriteResult files(Table table, Map<String, FileScanTask> live) throws IOException {
    OutputFileFactory outputs = OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PARQUET).build();
    GenericFileWriterFactory factory = new GenericFileWriterFactory.Builder(table).deleteFileFormat(FileFormat.PARQUET).build();
    BaseDeleteLoader loader = loader(table);
    PositionDelete<Record> delete = PositionDelete.create();
    List<DeleteFile> written = new ArrayList<>();
    List<DeleteFile> replaced = new ArrayList<>();
    for (Map.Entry<String, Roaring64NavigableMap> one : positions.entrySet()) {
      DataFile file = live.get(one.getKey()).file();
      List<DeleteFile> own = live.get(one.getKey()).deletes().stream().filter(ContentFileUtil::isFileScoped).toList();
      if (!own.isEmpty()) {
        loader.loadPositionDeletes(own, one.getKey()).forEach(at -> one.getValue().addLong(at));
        replaced.addAll(own);
      }
      PartitionSpec spec = table.specs().get(file.specId());
      PositionDeleteWriter<Record> writer =
          factory.newPositionDeleteWriter(outputs.newOutputFile(), spec, file.partition());
      try (writer) {
        one.getValue().forEach(at -> writer.write(delete.set(one.getKey(), at)));
      }
      written.add(writer.toDeleteFile());
    }
    return new DeleteWriteResult(written, CharSequenceSet.empty(), replaced);
  }
}
