"""The JVM behind a Spark session: Iceberg's classes, looked up once, and its exceptions in frazil's words."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from frazil.commit.protocol import AttemptFailed
from frazil.errors import FrazilError, Halted
from frazil.iceberg.faults import JavaFault, attempt_failed, explain
from frazil.model.types import Column, StructType, schema_json
from frazil.spark.requests import COUNTER
from frazil.spark.running_java import java_class, java_names, require_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Jvm:
    """Iceberg's library. What is static is looked up once."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        root = java_names(spark._jvm)
        gateway: Any = spark.sparkContext._gateway
        self.root, self.gateway = root, gateway
        iceberg = root.org.apache.iceberg
        self.iceberg = iceberg
        self.schema_to_json = iceberg.SchemaParser.toJson
        self.schema_from_json = iceberg.SchemaParser.fromJson
        self.build_metadata_from = iceberg.TableMetadata.buildFrom
        # Every Spark has it. What it writes comes to Python in one call, where reading a map takes two for each entry.
        self._json = root.com.fasterxml.jackson.databind.ObjectMapper()
        self._functions: dict[str, Any] = {}
        self._calls: Any = None
        self._to_list = root.java.util.stream.Collectors.toList()
        self.coordinator = iceberg.spark.FileRewriteCoordinator.get()
        self.task_sets = iceberg.spark.ScanTaskSetManager.get()
        # `SparkTableCache.get()` is static, and py4j finds the instance method of the same name first: hence reflection.
        java_class = self._class("org.apache.iceberg.spark.SparkTableCache")
        method = java_class.getMethod("get", gateway.new_array(root.java.lang.Class, 0))
        self.table_cache = method.invoke(None, gateway.new_array(root.java.lang.Object, 0))

    def count_calls(self) -> None:
        """From now on the calls of the catalog are counted, where Spark has frazil's jar."""
        self._calls = java_class(self.spark, COUNTER)

    def asks(self, kind: str) -> None:
        """The catalog is called, for one of the kinds of requests."""
        if self._calls is not None:
            self._calls.count("catalog", kind)

    def strings(self, values: Sequence[str]) -> Any:
        """A `String[]`."""
        array = self.gateway.new_array(self.root.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def ints(self, values: Sequence[int]) -> Any:
        """An `int[]`."""
        array = self.gateway.new_array(self.root.int, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def texts(self, entries: Any) -> dict[str, str]:
        """A `Map<String, String>`."""
        found: dict[str, str] = json.loads(self._json.writeValueAsString(entries))
        return found

    def text_list(self, values: Sequence[str]) -> Any:
        """A `List<String>`, made in one call."""
        return self._json.readValue(json.dumps(list(values)), self._class("java.util.ArrayList"))

    def each(self, values: Any, *getters: str) -> list[Any]:
        """What the getters (`Snapshot.parentId`), one after the other, return for each value of a Java iterable.

        It takes a few calls, however many values there are.
        """
        found: list[Any] = json.loads(self._json.writeValueAsString(self._gathered(values, getters)))
        return found

    def among(self, wanted: Iterable[str], values: Any, getter: str) -> set[str]:
        """The wanted texts that a getter returns for any value of a Java iterable. Only they come to Python."""
        both = self.root.java.util.HashSet(self.text_list(list(wanted)))
        both.retainAll(self.root.java.util.HashSet(self._gathered(values, [getter])))
        return set(json.loads(self._json.writeValueAsString(both)))

    def like(self, pattern: str, values: Any, getter: str) -> list[str]:
        """The texts that a getter returns for the values of a Java iterable, and in which a pattern is found."""
        stream = self._stream(values).map(self.function(getter))
        matching = stream.filter(self.root.java.util.regex.Pattern.compile(pattern).asPredicate())
        found: list[str] = json.loads(self._json.writeValueAsString(matching.collect(self._to_list)))
        return found

    def _gathered(self, values: Any, getters: Sequence[str]) -> Any:
        stream = self._stream(values)
        for getter in getters:
            stream = stream.map(self.function(getter))
        return stream.collect(self._to_list)

    def _stream(self, values: Any) -> Any:
        """A stream of a Java iterable. Py4j does not find `spliterator` where an interface alone has it."""
        util = self.root.java.util
        return util.stream.StreamSupport.stream(util.Spliterators.spliteratorUnknownSize(values.iterator(), 0), False)

    def counted(self, values: Any, function: Any) -> dict[str, int]:
        """How many values of a Java iterable a function turns into each text."""
        collectors = self.root.java.util.stream.Collectors
        found = (
            self._stream(values)
            .map(function)
            .collect(collectors.groupingBy(self.root.java.util.function.Function.identity(), collectors.counting()))
        )
        counts: dict[str, int] = json.loads(self._json.writeValueAsString(found))
        return counts

    def partition_text(self) -> Any:
        """A Java function that turns a data file into the text of its partition."""
        return self.function("ContentFile.partition").andThen(self._as("Function", self._handle("java.lang.Object", "toString")))

    def looked_up(self, entries: str, default: int) -> Any:
        """A Java function that looks a text up in a JSON object."""
        java = self.root.java.lang
        found = self._json.readValue(entries, self._class("java.util.HashMap"))
        both = self.gateway.new_array(java.Class, 2)
        both[0] = both[1] = self._class("java.lang.Object")
        handle = java.invoke.MethodHandles.publicLookup().unreflect(self._class("java.util.Map").getMethod("getOrDefault", both))
        others = self.gateway.new_array(java.Object, 1)
        others[0] = default
        return self._as("Function", java.invoke.MethodHandles.insertArguments(handle.bindTo(found), 1, others))

    def is_among(self, getter: str, values: Sequence[str]) -> Any:
        """A Java predicate: whether what a getter (`ManifestFile.path`) returns is one of these texts."""
        java = self.root.java.lang
        one = self.gateway.new_array(java.Class, 1)
        one[0] = self._class("java.lang.Object")
        contains = java.invoke.MethodHandles.publicLookup().unreflect(self._class("java.util.Set").getMethod("contains", one))
        contains = contains.bindTo(self.root.java.util.HashSet(self.text_list(values)))
        name, _, method = getter.rpartition(".")
        handle = self._handle(f"org.apache.iceberg.{name}", method)
        contains = contains.asType(java.invoke.MethodType.methodType(java.Boolean.TYPE, handle.type().returnType()))
        return self._as("Predicate", java.invoke.MethodHandles.filterReturnValue(handle, contains))

    def collected(self, values: Any) -> Any:
        """A Java iterable as a Java list: what is read from files or from a store is read once."""
        found = self.root.java.util.ArrayList()
        self.iceberg.relocated.com.google.common.collect.Iterables.addAll(found, values)
        return found

    def leavings(self, transaction: Any, operation: Any, manifests: Any) -> list[str]:
        """What an operation of a transaction has written, and a commit with these manifests does not need.

        Iceberg cleans up after commits of its own. Here the transaction is never committed, and only notes what it would delete.
        """
        java = self.root.java
        given, types = self.gateway.new_array(java.lang.Object, 1), self.gateway.new_array(java.lang.Class, 1)
        given[0], types[0] = java.util.HashSet(manifests), self._class("java.util.Set")
        clean = self._class("org.apache.iceberg.SnapshotProducer").getDeclaredMethod("cleanUncommitted", types)
        clean.setAccessible(True)
        clean.invoke(operation, given)
        noted = self._class("org.apache.iceberg.BaseTransaction").getDeclaredField("deletedFiles")
        noted.setAccessible(True)
        return [str(path) for path in noted.get(transaction)]

    def predicate(self, getter: str) -> Any:
        """A getter that says yes or no (`ManifestFile.hasDeletedFiles`) as a Java predicate."""
        name, _, method = getter.rpartition(".")
        return self._as("Predicate", self._handle(f"org.apache.iceberg.{name}", method))

    def function(self, getter: str) -> Any:
        """A getter of one of Iceberg's interfaces (`ContentFile.specId`) as a Java function."""
        if getter not in self._functions:
            name, _, method = getter.rpartition(".")
            self._functions[getter] = self._as("Function", self._handle(f"org.apache.iceberg.{name}", method))
        return self._functions[getter]

    def _handle(self, name: str, method: str) -> Any:
        """A method without arguments."""
        java = self.root.java.lang
        found = self._class(name).getMethod(method, self.gateway.new_array(java.Class, 0))
        return java.invoke.MethodHandles.publicLookup().unreflect(found)

    def _as(self, kind: str, handle: Any) -> Any:
        """A method as one of Java's functional interfaces."""
        return self.root.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            self._class(f"java.util.function.{kind}"), handle
        )

    def is_a(self, value: Any, kind: str) -> bool:
        """Whether a Java object is of one of Iceberg's types: `io.FileIO`."""
        return bool(self._class(f"org.apache.iceberg.{kind}").isInstance(value))

    def field(self, value: Any, kind: str, name: str) -> Any:
        """What a Java object keeps to itself: a field that one of Iceberg's classes (`rest.RESTCatalog`) declares."""
        found = self._class(f"org.apache.iceberg.{kind}").getDeclaredField(name)
        found.setAccessible(True)
        return found.get(value)

    def _class(self, name: str) -> Any:
        java = self.root.java.lang
        return java.Class.forName(name, True, java.Thread.currentThread().getContextClassLoader())

    def column_type(self, column: Column) -> Any:
        """The Java type of a column; its nested fields get their ids when the table takes it."""
        return self.schema_from_json(json.dumps(schema_json(StructType((column,))))).findType(1)

    def field_ids(self, schema: Any) -> dict[str, int]:
        """The ids of a schema's columns, by their names; not those within them."""
        return {field["name"]: field["id"] for field in json.loads(self.schema_to_json(schema))["fields"]}

    def view(self, table: Any, metadata: Any) -> Any:
        """A table that cannot be committed to: the files of another, under metadata that only this process knows."""
        operations = self.iceberg.StaticTableOperations(metadata, table.io(), table.locationProvider())
        return self.iceberg.BaseTable(operations, table.name())


def items(iterable: Any) -> Iterator[Any]:
    """What a Java iterable holds. Python's own way to the end goes through an exception, which takes dozens of calls."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Makes the session the active one of the thread: there Spark finds a catalog's settings, whichever session is asked.

    PySpark keeps an active session of its own, which some of its calls set in passing; both are put back.
    """
    with _IN_PYTHON.kept(type(spark)):
        sessions = spark._get_j_spark_session_class(spark._jvm)
        before = sessions.getActiveSession()
        sessions.setActiveSession(spark._jsparkSession)
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            else:
                sessions.clearActiveSession()


class _Kept:
    """PySpark's active session is one for all threads: the last of those that may change it puts back what the first found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._found: SparkSession | None = None

    @contextmanager
    def kept(self, sessions: type[SparkSession]) -> Iterator[None]:
        """As long as the block, and that of any other thread."""
        with self._lock:
            if not self._inside:
                self._found = sessions._activeSession
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    sessions._activeSession = self._found


_IN_PYTHON = _Kept()


def fault_of(error: BaseException) -> JavaFault:
    """The Java exception behind a Python one, or the Python one itself in the same form. Raises when Java has ended."""
    require_answer(error)
    java = getattr(error, "java_exception", None)
    if java is None:
        java = getattr(error, "_origin", None)
    if java is None:
        kind = type(error)
        return JavaFault((kind.__name__,), str(error), of_python=kind.__module__.partition(".")[0] not in ("pyspark", "py4j"))
    return _read_fault(java, depth=8)


_OF_DATABASE = "java.sql.SQLException"


def _read_fault(java: Any, depth: int) -> JavaFault:
    classes = []
    java_class = java.getClass()
    while java_class is not None:
        classes.append(str(java_class.getName()))
        java_class = java_class.getSuperclass()
    cause = java.getCause()
    deeper = _read_fault(cause, depth - 1) if cause is not None and depth > 0 else None
    code, status = _code_in(java, classes), _status_in(java, classes)
    number = int(java.getErrorCode()) if _OF_DATABASE in classes else 0
    return JavaFault(tuple(classes), str(java.getMessage() or ""), deeper, code, status, number=number)


def _status_in(java: Any, classes: Sequence[str]) -> int:
    """The status of the answer of a store; 0 where there was none."""
    if "software.amazon.awssdk.core.exception.SdkServiceException" in classes:
        return int(java.statusCode())
    return int(java.getCode()) if "com.google.cloud.BaseServiceException" in classes else 0


def _code_in(java: Any, classes: Sequence[str]) -> str:
    """The code in the answer of a database, or of a service of Amazon's kind."""
    if _OF_DATABASE in classes:
        return str(java.getSQLState() or "")
    details = java.awsErrorDetails() if "software.amazon.awssdk.awscore.exception.AwsServiceException" in classes else None
    return str(details.errorCode() or "") if details is not None else ""


@contextmanager
def java_errors(address: str) -> Iterator[None]:
    """Turns the JVM's exceptions into frazil's."""
    try:
        yield
    except FrazilError:
        raise
    except Exception as error:
        fault = fault_of(error)
        known = explain(fault, address)
        raise known or _unknown(fault, address) from error


def _unknown(fault: JavaFault, address: str) -> FrazilError:
    """A failure that nothing is known of: neither the user's file nor the data is said to be wrong."""
    return FrazilError(
        "internal",
        f"The catalog at {address} failed in a way that is not known: {fault.chain[-1].line}",
        fix="Run the command again with --debug for Java's trace, and look into the catalog's log.",
    )


@contextmanager
def attempt_errors(address: str) -> Iterator[None]:
    """Turns the JVM's exceptions into outcomes of an attempt, or into what stops the sink at once."""
    try:
        yield
    except (FrazilError, AttemptFailed):
        raise
    except Exception as error:
        failed = attempt_failed(fault_of(error), address)
        if isinstance(failed.outcome.error, Halted):
            raise failed.outcome.error from error
        raise failed from error
