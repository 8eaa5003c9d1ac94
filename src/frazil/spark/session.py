"""From settings to a SparkSession, and a session of its own for each sink's catalog.

No setting goes to the command line of the JVM, see :mod:`frazil.spark.java_process`. In what Spark itself shows, its UI and its
event logs, secrets are redacted: by the names of settings, and by what their values look like.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from frazil.errors import ConfigError, EnvironmentFault
from frazil.model.secrets import MASK, SECRET_NAME, SECRET_VALUE, is_secret, masked
from frazil.model.settings import Settings, SparkSettings
from frazil.spark.cache import state_dir
from frazil.spark.catalogs import CatalogSettings
from frazil.spark.class_archive import CLASS_PATH, USERS_OWN, class_path, sharing_options
from frazil.spark.jars import needed_jars
from frazil.spark.java import java_home, quiet_java_home
from frazil.spark.java_process import JAVA_OPTIONS
from frazil.spark.requests import COUNTED_REST
from frazil.spark.running_java import (
    LATE_JARS,
    SUBMITTED,
    extend_class_path,
    forget_dead_java,
    is_stopped,
    java_class,
    java_died,
    java_environment,
    launch_java,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("frazil")

# Pipelines run in threads of their own; two of them must not describe their catalogs in the same session at once.
_choosing = threading.Lock()

# Nor may two of them start Spark at once.
_starting = threading.Lock()

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

REDACTION = "spark.redaction.regex"
SQL_REDACTION = "spark.sql.redaction.options.regex"
# What Spark hides when nobody says anything.
_REDACTED = {REDACTION: "(?i)secret|password|token|access[.]?key", SQL_REDACTION: "(?i)url"}
# Addresses may have passwords in them.
_ADDRESSES = r"(?i)\bur[il]$"

# Options of the user's that frazil adds to when it starts Spark.
_ADDED_TO = ("spark.sql.extensions", "spark.jars", JAVA_OPTIONS, "spark.executor.extraJavaOptions", CLASS_PATH)

# A class by which the jars of a component are known.
_CLASSES = {
    "postgres": "org.postgresql.Driver",
    "mysql": "org.mariadb.jdbc.Driver",
    "brotli": "com.aayushatharva.brotli4j.Brotli4jLoader",
    "aws": "software.amazon.awssdk.services.s3.S3Client",
    "gcp": "com.google.cloud.storage.Storage",
    "azure": "com.azure.storage.file.datalake.DataLakeFileSystemClient",
}

# What Spark generates for many columns is longer than what Java compiles by itself; it would be interpreted, three times as slow.
LARGE_METHODS = "DontCompileHugeMethods"

# Where Spark puts what it shuffles and spills.
SCRATCH = "spark.local.dir"

# The class of Hadoop's that reads and writes local files.
LOCAL_FILES = "spark.hadoop.fs.file.impl"

DEFAULTS = {
    "spark.sql.extensions": EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    # The UI listens on every interface and shows the environment.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark remembers its work for the UI even where there is none, by default a thousand plans of a quarter of a megabyte each.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    # Small batches are the rule; two hundred reducers for a thousand rows are not.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.enabled": "true",
    # The rows of an upsert are cached after a shuffle; without this, in as many partitions as a large batch would need.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
    # For bucketed tables of Spark's own. While it is on, Spark clones the session for each frame that it caches, and never
    # lets the clone go: each batch that is upserted would take memory for good.
    "spark.sql.sources.bucketing.autoBucketedScan.enabled": "false",
}


def spark_session(settings: SparkSettings, components: Iterable[str] = ("core",)) -> SparkSession:
    """The process's Spark, started when there is none, or when its Java has died.

    A session that already runs is used as it is, when it fits.
    """
    with _starting:
        return _running(settings) or _started(settings, tuple(dict.fromkeys(("core", *components))))


def _running(settings: SparkSettings) -> SparkSession | None:
    from pyspark.sql import SparkSession

    if forget_dead_java():
        _log.warning("Spark's Java has died; another is started for %s.", settings.app_name)
        return None
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is None or is_stopped(running):
        return None
    require_iceberg(running)
    return running


def _not_of_the_bridge(record: logging.LogRecord) -> bool:
    """Whether a line that was logged under no name is somebody else's: py4j logs lost connections so."""
    return record.module != "java_gateway"


def _started(settings: SparkSettings, components: Sequence[str]) -> SparkSession:
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    if SUBMITTED in os.environ:
        return _submitted(settings, components)
    jars = needed_jars(components, report=_report)
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = launch_conf(settings, jars)
    _make_scratch(conf)
    # PySpark and its bridge log every error that they raise; frazil reports each once, in its own words.
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_the_bridge)
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    launch_java(conf, quiet_java_home())
    with _own_handler_of_ctrl_c():
        spark = SparkSession.builder.appName(settings.app_name).config(map=dict(conf)).getOrCreate()
    if not _one_process(conf["spark.master"]):
        # Executors of their own complain at length when their application ends without saying so.
        atexit.register(_stop, spark)
    return spark


def _stop(spark: SparkSession) -> None:
    if not java_died(spark):
        spark.stop()


@contextmanager
def _own_handler_of_ctrl_c() -> Iterator[None]:
    """Spark, when it is started on the main thread, handles Ctrl-C by itself. A program that has its own handler keeps it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler:
        signal.signal(signal.SIGINT, before)


def with_scratch(settings: Settings) -> SparkSettings:
    """What Spark is started with: its scratch goes to the folder for what may be lost, unless it has a place of its own.

    Under `spark-submit` Spark is started by that command, which says itself where its scratch is.
    """
    spark = settings.spark
    if settings.state_dir is None or SCRATCH in spark.conf or SUBMITTED in os.environ:
        return spark
    folder = str(state_dir(settings.state_dir))
    return spark.model_copy(update={"conf": {**spark.conf, SCRATCH: folder}})


def _make_scratch(conf: Mapping[str, str]) -> None:
    """Creates the folder for Spark's scratch files: if it cannot, Java ends without a message. Of several folders Spark uses
    those that it can.
    """
    folder = conf.get(SCRATCH, "")
    if not folder or "," in folder:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "scratch-folder",
            f"The folder for Spark's scratch, {folder}, cannot be made: {error.strerror}.",
            fix=f"Set settings.state_dir, or {SCRATCH} of settings.spark.conf, to a folder that this user may write to.",
        ) from error


def with_settings(session: SparkSession, settings: SparkSettings, *, insist: bool = True) -> SparkSession:
    """The session with what was asked for, as far as that can be set while Spark runs.

    Other options must be equal to Spark's: with ``insist`` a difference is an error, otherwise it is only logged.
    """
    wanted = settings.conf | ({} if settings.master is None else {"spark.master": settings.master})
    for name, given in wanted.items():
        value = _with_secrets(given) if name in (REDACTION, SQL_REDACTION) else given
        have = session.conf.get(name, None)
        if have == value or (name in _ADDED_TO and value in (have or "")):
            continue
        if not session.conf.isModifiable(name):
            has = f"without {name}" if have is None else f"with {name}={masked(have, name)}"
            words = f"Spark runs in this process already, {has}, and {masked(value, name)} is asked for."
            if insist:
                fix = "Ask for the same everywhere in a process, or leave it out."
                raise ConfigError("spark-runs-already", words, fix=fix)
            _log.warning("%s It stays as it is.", words)
            continue
        session.conf.set(name, value)
    return session


def _submitted(settings: SparkSettings, components: Iterable[str]) -> SparkSession:
    """The session of a program that `spark-submit` runs: the JVM is there, with the master, memory and jars of the command."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()
    conf = _with_own_needs(DEFAULTS | dict(SparkConf().getAll()) | settings.conf)
    if settings.master is not None:
        conf["spark.master"] = settings.master
    spark = SparkSession.builder.config(map=dict(conf)).getOrCreate()
    if java_class(spark, "org.apache.iceberg.spark.SparkCatalog") is None:
        raise EnvironmentFault(
            "jars-missing",
            "spark-submit has started Spark without Iceberg's jars, and cannot be given them any more.",
            fix=f'Submit with: spark-submit --jars "$(frazil jars {" ".join(components)})" ...',
        )
    atexit.register(spark.stop)
    return spark


def export_environment(catalogs: Iterable[CatalogSettings]) -> None:
    """Sets what a store's library reads from the environment only, before the JVM starts and inherits it."""
    wanted: dict[str, str | SecretStr] = {}
    for catalog in catalogs:
        given: dict[str, str | SecretStr] = {**catalog.environment, **catalog.files}
        for name, value in given.items():
            if wanted.setdefault(name, value) != value:
                raise ConfigError(
                    "credentials-differ",
                    f"Two sinks need different credentials that can only be given to the whole process, as {name}.",
                    fix="Run their pipelines in processes of their own: frazil run PIPELINE.",
                )
    for name, value in wanted.items():
        os.environ[name] = value if isinstance(value, str) else _private_file(value)


def _private_file(content: SecretStr) -> str:
    """A file that only this user can read, gone when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="frazil-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "key.json"
    path.touch(mode=0o600)
    path.write_text(content.get_secret_value())
    return str(path)


def launch_conf(settings: SparkSettings, jars: Sequence[Path]) -> dict[str, str]:
    """The options of a new Spark: frazil's defaults, then the user's, then the jars, of which those of `core` are the first."""
    master = settings.master or settings.conf.get("spark.master") or "local[*]"
    conf = _with_own_needs(DEFAULTS | {"spark.master": master} | settings.conf)
    for name in (JAVA_OPTIONS, "spark.executor.extraJavaOptions"):
        if LARGE_METHODS not in conf.get(name, ""):
            conf[name] = f"-XX:-{LARGE_METHODS} {conf.get(name, '')}".strip()
    if "log4j2.configurationFile" not in conf[JAVA_OPTIONS]:
        conf[JAVA_OPTIONS] += f" -Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    if _one_process(master) and not USERS_OWN & conf.keys():
        conf[CLASS_PATH] = class_path(jars)
        conf[JAVA_OPTIONS] += f" {LATE_JARS}"
        # Known to a process from its beginning only; executors of their own get the jar when they run already.
        conf.setdefault(LOCAL_FILES, "frazil.LocalFiles")
        conf[JAVA_OPTIONS] = f"{conf[JAVA_OPTIONS]} {sharing_options(conf[JAVA_OPTIONS])}".strip()
    else:
        conf["spark.jars"] = ",".join(filter(None, [conf.get("spark.jars"), *(str(jar) for jar in jars)]))
    if master.startswith("local"):
        # Nothing outside this machine talks to a local Spark, and a laptop's host name often does not resolve.
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return conf


def _one_process(master: str) -> bool:
    """Whether driver and executors are one process, which needs its jars in one place only."""
    return master == "local" or master.startswith("local[")


def _with_own_needs(conf: dict[str, str]) -> dict[str, str]:
    """The options with what frazil cannot do without: secrets that are hidden, and Iceberg's extensions."""
    own = {name: _with_secrets(conf.get(name, by_default)) for name, by_default in _REDACTED.items()}
    given = conf["spark.sql.extensions"]
    return conf | own | {"spark.sql.extensions": given if EXTENSIONS in given else f"{EXTENSIONS},{given}"}


def _with_secrets(pattern: str | None) -> str:
    """A user's own pattern, and Spark's, is widened, never replaced. Spark compares names and values with it alike."""
    missing = [own for own in (SECRET_NAME.pattern, _ADDRESSES, SECRET_VALUE) if own not in (pattern or "")]
    return "|".join(filter(None, [pattern, *missing]))


def require_iceberg(spark: SparkSession) -> None:
    """Refuses a session that was made without Iceberg."""
    if EXTENSIONS not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise EnvironmentFault(
            "session-without-iceberg",
            "The Spark session that is running was started without Iceberg's extensions.",
            fix=f"Start it with spark.sql.extensions={EXTENSIONS} and the Iceberg runtime jar, or let frazil start Spark.",
        )


def give_components(spark: SparkSession, components: Iterable[str]) -> None:
    """Gives a Spark of one process that runs already the jars of components that it was started without, where it takes them."""
    lacking = _lacking(spark, components)
    if not lacking or not _one_process(spark.sparkContext.master or ""):
        return
    there = needed_jars()
    extend_class_path(spark, [jar for jar in needed_jars(lacking, report=_report) if jar not in there])


def _report(text: str) -> None:
    print(f"frazil: {text}", file=sys.stderr)  # noqa: T201


def _lacking(spark: SparkSession, components: Iterable[str]) -> list[str]:
    return [name for name in components if name in _CLASSES and java_class(spark, _CLASSES[name]) is None]


def require_components(spark: SparkSession, components: Iterable[str]) -> None:
    """Refuses a Spark that was started without the jars of these components, and can no longer be given them."""
    if lacking := _lacking(spark, components):
        raise EnvironmentFault(
            "jars-missing",
            f"Spark runs in this process already, without the jars of {' and '.join(lacking)}.",
            fix=f"Start Spark with them, before anything else does: frazil.session(components={['core', *lacking]}); "
            "or use this catalog in a process of its own.",
        )


def require_environment(spark: SparkSession, catalog: CatalogSettings) -> None:
    """Refuses a Spark that runs without credentials which its libraries read from the environment that it was started in."""
    given = {name: java_environment(spark, name) for name in (*catalog.environment, *catalog.files)}
    lacking = [name for name, value in catalog.environment.items() if given[name] != value]
    lacking += [name for name, content in catalog.files.items() if _content(given[name]) != content.get_secret_value()]
    if lacking:
        raise EnvironmentFault(
            "credentials-late",
            f"Spark runs in this process already, without {' and '.join(lacking)}, which its libraries read from the environment "
            "that it was started in.",
            fix="Set these credentials there before Spark starts, or use this catalog in a process of its own.",
        )


def _content(path: str | None) -> str | None:
    try:
        return None if path is None else Path(path).read_text()
    except OSError:
        return None


def session_for(spark: SparkSession, catalog: CatalogSettings) -> SparkSession:
    """A session in which the catalog is known: this one where it fits already, otherwise a new one of the same Spark.

    Sessions share executors and jars, but not catalogs: two sinks may both call their catalog `lake`.
    """
    require_components(spark, catalog.needed)
    require_environment(spark, catalog)
    plain = catalog.spark_conf
    prefix = f"spark.sql.catalog.{catalog.name}"
    wanted = _counted(spark, plain, prefix)
    with _choosing:
        known = _options_under(spark, prefix)
        if known and (known in (wanted, plain) or not wanted):
            return spark
        if not wanted:
            raise ConfigError(
                "catalog-unknown",
                f"The Spark session knows no catalog {catalog.name!r}.",
                fix=f"Set {prefix} and its options in spark.conf, or describe the catalog in the sink.",
            )
        session = spark.newSession() if known else spark
        for key in _options_under(session, prefix):
            session.conf.unset(key)
        _hide_in_event_log(session, wanted)
        for key, value in wanted.items():
            session.conf.set(key, value)
        return session


def _counted(spark: SparkSession, options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options, with Iceberg's REST catalog as the one whose requests are counted, where Spark has that."""
    if options.get(f"{prefix}.type") != "rest" or java_class(spark, COUNTED_REST) is None:
        return dict(options)
    others = {key: value for key, value in options.items() if key != f"{prefix}.type"}
    return others | {f"{prefix}.catalog-impl": COUNTED_REST}


def _hide_in_event_log(session: SparkSession, options: Mapping[str, str]) -> None:
    """A job carries the options of its session. Of these the event log masks only what the application itself has, too."""
    application = session.sparkContext._conf
    application.set(REDACTION, _with_secrets(application.get(REDACTION)))
    session.conf.set(SQL_REDACTION, _with_secrets(session.conf.get(SQL_REDACTION)))
    for key in (key for key, value in options.items() if is_secret(key, value)):
        application.set(key, MASK)


def _options_under(spark: SparkSession, prefix: str) -> dict[str, str]:
    return {key: value for key, value in spark.conf.getAll.items() if key == prefix or key.startswith(f"{prefix}.")}
