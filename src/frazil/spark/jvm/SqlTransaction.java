package frazil;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.BaseMetastoreTableOperations;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.jdbc.JdbcClientPool;

/**
 * Changes several tables of a SQL catalog in one transaction of its database: all of them, or none.
 *
 * <p>Iceberg's own commit of one table is such an update, too, with the same comparison. The connection is one of its own: one of
 * Iceberg's pool would be given back in the middle of a transaction if the database failed.
 */
public final class SqlTransaction {
  private static final String SWAP =
      "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
          + " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?";

  /** What a table is to become. */
  private record Swap(
      TableIdentifier name, BaseMetastoreTableOperations operations, TableMetadata base, TableMetadata after) {}

  private final JdbcCatalog catalog;

  // In the order of names: two transactions that met in another order would wait for each other.
  private final Map<String, Swap> swaps = new TreeMap<>();

  public SqlTransaction(JdbcCatalog catalog) {
    this.catalog = catalog;
  }

  /** Adds a table that is to be changed. */
  public void add(
      TableIdentifier name, BaseMetastoreTableOperations operations, TableMetadata base, TableMetadata after) {
    swaps.put(name.toString(), new Swap(name, operations, base, after));
  }

  /** Changes the tables if none of them was changed since. Metadata files stay if nobody knows whether tables have them. */
  public void commit() throws ReflectiveOperationException, SQLException {
    Map<Swap, String> written = new LinkedHashMap<>();
    boolean asked = false;
    try {
      for (Swap swap : swaps.values()) {
        written.put(swap, writtenMetadata(swap));
      }
      try (Connection connection = connection()) {
        connection.setAutoCommit(false);
        for (Map.Entry<Swap, String> swap : written.entrySet()) {
          if (!isChanged(connection, swap.getKey(), swap.getValue())) {
            throw new CommitFailedException("Table %s was changed meanwhile", swap.getKey().name());
          }
        }
        asked = true;
        connection.commit();
      }
    } finally {
      if (!asked) {
        written.forEach((swap, file) -> CatalogUtil.deleteFiles(swap.operations().io(), List.of(file), "metadata", false));
      }
    }
    for (Swap swap : swaps.values()) {
      CatalogUtil.deleteRemovedMetadataFiles(swap.operations().io(), swap.base(), swap.after());
    }
  }

  private static String writtenMetadata(Swap swap) throws ReflectiveOperationException {
    Method write =
        BaseMetastoreTableOperations.class.getDeclaredMethod("writeNewMetadata", TableMetadata.class, int.class);
    return (String) called(write, swap.operations(), swap.after(), swap.operations().currentVersion() + 1);
  }

  private boolean isChanged(Connection connection, Swap swap, String location) throws SQLException {
    try (PreparedStatement update = connection.prepareStatement(SWAP)) {
      update.setString(1, location);
      update.setString(2, swap.base().metadataFileLocation());
      update.setString(3, catalog.name());
      update.setString(4, String.join(".", swap.name().namespace().levels()));
      update.setString(5, swap.name().name());
      update.setString(6, swap.base().metadataFileLocation());
      return update.executeUpdate() == 1;
    }
  }

  private Connection connection() throws ReflectiveOperationException {
    Field pool = JdbcCatalog.class.getDeclaredField("connections");
    pool.setAccessible(true);
    return (Connection) called(JdbcClientPool.class.getDeclaredMethod("newClient"), pool.get(catalog));
  }

  private static Object called(Method method, Object owner, Object... arguments) throws ReflectiveOperationException {
    method.setAccessible(true);
    try {
      return method.invoke(owner, arguments);
    } catch (InvocationTargetException failed) {
      if (failed.getCause() instanceof RuntimeException cause) {
        throw cause;
      }
      throw failed;
    }
  }
}
