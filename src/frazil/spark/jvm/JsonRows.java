package frazil;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads plain messages: JSON objects that leave no question, in one pass over their bytes.
 *
 * <p>Whatever could be a fault, or could be understood in two ways, is not plain: a value of another type, a number that does not
 * fit, anything behind the object, bytes that are no UTF-8, half characters, and what is merely rare. Such a message is left to a
 * more careful reader, and nothing is said about it here. Of a key that stands twice the last value counts, as everywhere.
 *
 * <p>A variant is read as its text: a text as it is, a number without an exponent by its digits, without zeros at its end.
 *
 * <p>An instance may be used by several threads.
 */
public final class JsonRows implements Serializable {
  private static final long serialVersionUID = 1L;

  // Far below what Jackson refuses.
  private static final int LONGEST_MESSAGE = 1 << 23;
  static final int DEEPEST = 64;

  private final StructType carrier;
  private final String root;
  private final transient Fields fields;

  private JsonRows(StructType carrier, String root, Fields fields) {
    this.carrier = carrier;
    this.root = root;
    this.fields = fields;
  }

  /**
   * The messages of a binary column as structs, null where they are not plain.
   *
   * @param carrier what is read, as a schema in JSON
   * @param root the key of the object that counts, or empty for the message itself
   * @return null when there is something in the schema that is never plain
   */
  public static Column column(Column messages, String carrier, String root) {
    JsonRows reader = of((StructType) DataType.fromJson(carrier), root);
    if (reader == null) {
      return null;
    }
    Literal target = Literal.create(reader, new ObjectType(JsonRows.class));
    var arguments = CollectionConverters.asScala(List.<Expression>of(ExpressionUtils.expression(messages))).toSeq();
    var unchecked = CollectionConverters.asScala(List.<AbstractDataType>of()).toSeq();
    return ExpressionUtils.column(new Invoke(target, "read", reader.type(), arguments, unchecked, true, true, true));
  }

  private static JsonRows of(StructType carrier, String root) {
    StructType whole = root.isEmpty() ? carrier : new StructType().add(root, carrier);
    return kind(whole, 0) instanceof Fields fields ? new JsonRows(carrier, root, fields) : null;
  }

  private Object readResolve() {
    return of(carrier, root);
  }

  private DataType type() {
    return root.isEmpty() ? fields.type() : fields.kinds[0].type();
  }

  /** The fields of a message; null when it is not plain. */
  public InternalRow read(byte[] message) {
    if (message.length > LONGEST_MESSAGE) {
      return null;
    }
    try {
      InternalRow whole = (InternalRow) new JsonPass(message).whole(fields);
      return root.isEmpty() ? whole : whole.getStruct(0, carrier.length());
    } catch (JsonPass.NotPlain notPlain) {
      return null;
    }
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof JsonRows that && carrier.equals(that.carrier) && root.equals(that.root);
  }

  @Override
  public int hashCode() {
    return 31 * carrier.hashCode() + root.hashCode();
  }

  @Override
  public String toString() {
    return "json_rows";
  }

  /** What values are read as. */
  interface Kind {
    DataType type();

    /** A value that is not null, and at whose first byte the pass is. */
    Object read(JsonPass pass);
  }

  private static Kind kind(DataType type, int depth) {
    if (depth > DEEPEST) {
      return null;
    } else if (type instanceof StructType struct) {
      return Fields.of(struct, depth);
    } else if (type instanceof ArrayType list) {
      Kind element = kind(list.elementType(), depth + 1);
      return element == null ? null : new Items(element);
    } else if (type instanceof MapType map && map.keyType().equals(DataTypes.StringType)) {
      Kind value = kind(map.valueType(), depth + 1);
      return value == null ? null : new Entries(value);
    }
    return Stream.of(Scalar.values()).filter(one -> one.carrier.equals(type)).findFirst().orElse(null);
  }

  private enum Scalar implements Kind {
    STRING(DataTypes.StringType, JsonPass::string),
    LONG(DataTypes.LongType, pass -> pass.integer(Long.MIN_VALUE, Long.MAX_VALUE)),
    INTEGER(DataTypes.IntegerType, pass -> (int) pass.integer(Integer.MIN_VALUE, Integer.MAX_VALUE)),
    DOUBLE(DataTypes.DoubleType, JsonPass::number),
    FLOAT(DataTypes.FloatType, JsonPass::smallNumber),
    BOOLEAN(DataTypes.BooleanType, JsonPass::truth),
    BINARY(DataTypes.BinaryType, JsonPass::base64),
    VARIANT(DataTypes.VariantType, JsonPass::asText);

    private final DataType carrier;
    private final Function<JsonPass, Object> reader;

    Scalar(DataType carrier, Function<JsonPass, Object> reader) {
      this.carrier = carrier;
      this.reader = reader;
    }

    @Override
    public DataType type() {
      return this == VARIANT ? DataTypes.StringType : carrier;
    }

    @Override
    public Object read(JsonPass pass) {
      return reader.apply(pass);
    }
  }

  private record Items(Kind element) implements Kind {
    @Override
    public DataType type() {
      return DataTypes.createArrayType(element.type(), true);
    }

    @Override
    public Object read(JsonPass pass) {
      List<Object> items = new ArrayList<>();
      pass.expect('[');
      if (!pass.ends(']')) {
        do {
          items.add(pass.value(element));
        } while (pass.goesOn(']'));
      }
      return new GenericArrayData(items.toArray());
    }
  }

  private record Entries(Kind value) implements Kind {
    @Override
    public DataType type() {
      return DataTypes.createMapType(DataTypes.StringType, value.type(), true);
    }

    @Override
    public Object read(JsonPass pass) {
      Set<UTF8String> known = new HashSet<>();
      List<Object> keys = new ArrayList<>();
      List<Object> values = new ArrayList<>();
      pass.expect('{');
      if (!pass.ends('}')) {
        do {
          UTF8String key = pass.key();
          pass.require(known.add(key));
          keys.add(key);
          values.add(pass.value(value));
        } while (pass.goesOn('}'));
      }
      return new ArrayBasedMapData(new GenericArrayData(keys.toArray()), new GenericArrayData(values.toArray()));
    }
  }

  private static final class Fields implements Kind {
    private final String[] names;
    private final byte[][] written;
    private final Kind[] kinds;
    private final Map<UTF8String, Integer> places = new HashMap<>();

    // Which field came after another the last time. A guess: it may be stale, and threads may write it at the same time.
    private final int[] following;

    private Fields(String[] names, Kind[] kinds) {
      this.names = names;
      this.kinds = kinds;
      written = new byte[names.length][];
      following = new int[names.length + 1];
      for (int place = 0; place < names.length; place++) {
        written[place] = names[place].getBytes(StandardCharsets.UTF_8);
        places.put(UTF8String.fromBytes(written[place]), place);
        following[place] = place;
      }
    }

    static Fields of(StructType type, int depth) {
      StructField[] fields = type.fields();
      String[] names = new String[fields.length];
      Kind[] kinds = new Kind[fields.length];
      for (int place = 0; place < fields.length; place++) {
        names[place] = fields[place].name();
        kinds[place] = kind(fields[place].dataType(), depth + 1);
        if (kinds[place] == null || !isWrittenAsItIs(names[place])) {
          return null;
        }
      }
      return fields.length == 0 ? null : new Fields(names, kinds);
    }

    /** Whether a key without escapes is the name, byte by byte. */
    private static boolean isWrittenAsItIs(String name) {
      return StandardCharsets.UTF_8.newEncoder().canEncode(name)
          && name.chars().noneMatch(one -> one < ' ' || one == '"' || one == '\\');
    }

    @Override
    public DataType type() {
      StructType made = new StructType();
      for (int place = 0; place < names.length; place++) {
        made = made.add(names[place], kinds[place].type(), true);
      }
      return made;
    }

    @Override
    public InternalRow read(JsonPass pass) {
      Object[] values = new Object[kinds.length];
      int before = 0;
      pass.expect('{');
      if (!pass.ends('}')) {
        do {
          int place = following[before];
          if (place < written.length && pass.isKey(written[place])) {
            before = place + 1;
          } else {
            Integer found = places.get(pass.key());
            if (found == null) {
              pass.skip(0);
              continue;
            }
            place = found;
            following[before] = place;
            before = place + 1;
          }
          values[place] = pass.value(kinds[place]);
        } while (pass.goesOn('}'));
      }
      return new GenericInternalRow(values);
    }
  }
}
