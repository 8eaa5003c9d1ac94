package frazil;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.SaveMode;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.execution.streaming.Sink;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.CreatableRelationProvider;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.sources.StreamSinkProvider;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * `df.write.format("frazil")` and `df.writeStream.format("frazil")`.
 *
 * <p>The data frame itself is handed to the Python program that Spark belongs to, on the driver, as `foreachBatch` does it. No row
 * goes that way: the program tells Spark what to do with them.
 *
 * <p>The format cannot be read from; whoever tries learns what to use instead.
 */
public final class SinkProvider
    implements CreatableRelationProvider, StreamSinkProvider, RelationProvider, StreamSourceProvider, DataSourceRegister {
  /** The Python program. Its answers are null, or what is wrong, for people to read. */
  public interface Program {
    String write(Dataset<Row> data, Map<String, String> options, String mode);

    Batches open(Map<String, String> options, List<String> partitionColumns, String outputMode);
  }

  /** A sink of the program that takes the batches of one query. */
  public interface Batches {
    String write(Dataset<Row> data, long batch);
  }

  private static volatile Program program;

  /** From now on this program is asked. */
  public static void register(Program given) {
    program = given;
  }

  @Override
  public String shortName() {
    return "frazil";
  }

  @Override
  public boolean supportsDataType(DataType type) {
    return true; // the table decides
  }

  @Override
  public BaseRelation createRelation(
      SQLContext context, SaveMode mode, scala.collection.immutable.Map<String, String> options, Dataset<Row> data) {
    require(registered().write(data, asWritten(options), mode.name()));
    return new BaseRelation() {
      @Override
      public SQLContext sqlContext() {
        return context;
      }

      @Override
      public StructType schema() {
        return data.schema();
      }
    };
  }

  @Override
  public Sink createSink(
      SQLContext context,
      scala.collection.immutable.Map<String, String> options,
      Seq<String> partitionColumns,
      OutputMode mode) {
    Batches batches = registered().open(asWritten(options), CollectionConverters.asJava(partitionColumns), mode.toString());
    return new Sink() {
      @Override
      public void addBatch(long batch, Dataset<Row> data) {
        // Spark's own sink for foreachBatch makes a data frame of the batch that can be used as any other.
        new ForeachBatchSink<Row>(
                (frame, number) -> {
                  require(batches.write(frame, (Long) number));
                  return BoxedUnit.UNIT;
                },
                ExpressionEncoder.apply(data.schema()))
            .addBatch(batch, data);
      }

      @Override
      public String toString() {
        return "frazil";
      }
    };
  }

  @Override
  public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map<String, String> options) {
    throw notReadable("spark.read.format(\"frazil\")", "spark.read.table(\"lake.sales.orders\")");
  }

  @Override
  public Tuple2<String, StructType> sourceSchema(
      SQLContext context,
      Option<StructType> schema,
      String provider,
      scala.collection.immutable.Map<String, String> options) {
    throw notReadable("spark.readStream.format(\"frazil\")", "spark.readStream.table(\"lake.sales.orders\")");
  }

  @Override
  public Source createSource(
      SQLContext context,
      String metadataPath,
      Option<StructType> schema,
      String provider,
      scala.collection.immutable.Map<String, String> options) {
    throw notReadable("spark.readStream.format(\"frazil\")", "spark.readStream.table(\"lake.sales.orders\")");
  }

  private static IllegalArgumentException notReadable(String call, String instead) {
    return new IllegalArgumentException(
        call + ": frazil writes Iceberg tables, and Iceberg reads them.\nWrite " + instead + " instead.");
  }

  private static Program registered() {
    Program found = program;
    if (found == null) {
      throw new IllegalArgumentException(
          "format(\"frazil\") needs the Python program that this Spark belongs to. Call frazil.register(spark) in it first.");
    }
    return found;
  }

  private static void require(String problem) {
    if (problem != null) {
      throw new IllegalArgumentException(problem);
    }
  }

  /** Spark lowers the case of options, which names of properties do not survive. */
  private static Map<String, String> asWritten(scala.collection.immutable.Map<String, String> options) {
    return CollectionConverters.asJava(options instanceof CaseInsensitiveMap<String> map ? map.originalMap() : options);
  }
}
