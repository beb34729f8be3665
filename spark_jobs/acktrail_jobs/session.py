"""A Spark session that behaves the same everywhere, except where the user's own settings say otherwise."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from acktrail.config import cache_folder, environment, java_home
from acktrail.connect.activity import doing
from acktrail.embedded.kafka.installation import find_java
from acktrail.errors import MissingDependency
from acktrail_jobs.spark_java import ClassArchive, end_java, start_java

DEFAULT_MASTER: Final = "local[2]"
_MASTER: Final = "spark.master"
_APP_NAME: Final = "spark.app.name"
_SETTINGS: Final = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
        _APP_NAME: "acktrail",
    }
)
CONNECT: Final = "sc://"
_PYTHONS: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
_LOGGING: Final = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f'"-Dlog4j2.configurationFile={_LOGGING}"')
_LOCAL: Final = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.daemon.module": "acktrail_jobs.worker_daemon",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
)
"""A local master needs no network: it must not depend on what the machine's name resolves to. It lives for seconds, so
that compiling its own code twice costs more than it saves (with both options of Java, a first job takes half the CPU
time), and so does compiling code for the few rows that workers leave. On a cluster nothing of it is set."""
_USERS: Final = frozenset({"PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"})
"""Where a user can name another master."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPlace:
    """Which Spark does the work. None: not known (a Connect server says nothing of its UI)."""

    version: str
    master: str | None
    application_id: str | None
    application_name: str | None
    ui: str | None

    @classmethod
    def of(cls, session: SparkSession) -> SparkPlace:
        """Where the work of `session` is done."""
        master, application_id, name = (session.conf.get(each, None) for each in (_MASTER, "spark.app.id", _APP_NAME))
        ui = None if is_connected(session) else session.sparkContext.uiWebUrl
        return cls(version=session.version, master=master, application_id=application_id, application_name=name, ui=ui)


@contextmanager
def spark_session(master: str | None = None, **more: str) -> Iterator[SparkSession]:
    """The session that runs in this process, as it is; else a new one on `master` that ends with the block. `more`:
    further defaults of settings, where it has a driver of its own.

    `master` is a cluster's, or a Spark Connect server's (``sc://host:15002``), whose Python workers must be able to
    import acktrail. None: what ``spark-submit``, SPARK_REMOTE or the user's settings say, else two local threads.
    Python workers run this interpreter unless the environment names another (PYSPARK_PYTHON). A setting that the user
    makes (``--conf``, spark-defaults.conf, the server's own), the application's name among them, stays as it is. Raises
    MissingDependency (no Java that runs Spark).
    """
    running = running_session()
    if running is not None:
        yield running
        return
    surroundings = environment()
    remote = surroundings.get("SPARK_REMOTE") if master is None else master
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        if remote and (master is None or remote.startswith(CONNECT)):
            settings = {} if remote.startswith(CONNECT) else {**_SETTINGS, **_LOCAL}
            # With a token, PySpark speaks TLS to every other name of this machine.
            address = remote.replace("sc://127.0.0.1", "sc://localhost")
            with SparkSession.builder.config(map=settings).remote(address).getOrCreate() as session:
                yield session
        else:
            with _driver(master, surroundings, more) as session:
                yield session


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once; for a Connect server that does not report it, the partitions of a shuffle."""
    if not is_connected(session):
        return int(session.sparkContext.defaultParallelism)
    said = session.conf.get("spark.default.parallelism", None) or session.conf.get("spark.sql.shuffle.partitions")
    return int(said or 1)


def is_connected(session: SparkSession) -> bool:
    """Whether its Spark is reached by the protocol of Spark Connect."""
    return "connect" in type(session).__module__.split(".")


def running_session() -> SparkSession | None:
    """The session of this thread, or one on the context that another thread made."""
    active = SparkSession.getActiveSession()
    if active is not None or SparkContext._active_spark_context is None:  # noqa: SLF001  # there is no public way to ask
        return active
    return SparkSession.builder.getOrCreate()


@contextmanager
def _driver(master: str | None, surroundings: Mapping[str, str], more: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session whose driver is the Java of this process: the one of ``spark-submit``, or one that starts here."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in surroundings
    with nullcontext() if is_submitted else _own_java(master, surroundings):
        by_user = settings_of_user(is_submitted=is_submitted)
        chosen = master or ("" if _MASTER in by_user else DEFAULT_MASTER)
        defaults = {**_SETTINGS, **(_LOCAL if chosen.startswith("local") else {}), **more}
        settings = {name: defaults[name] for name in defaults.keys() - by_user.keys()}
        if chosen:
            settings[_MASTER] = chosen
        with SparkSession.builder.config(map=settings).getOrCreate() as session:
            if "spark.log.level" not in by_user:
                session.sparkContext.setLogLevel("ERROR")
            if "PYSPARK_PYTHON" not in surroundings and not by_user.keys() & _PYTHONS:
                session.sparkContext.pythonExec = sys.executable
            yield session


@contextmanager
def _own_java(master: str | None, surroundings: Mapping[str, str]) -> Iterator[None]:
    """Java for the session of the block, which ends with it only where it makes an archive of its classes."""
    java = _java()
    if SparkContext._gateway is not None:  # noqa: SLF001  # see running_session
        yield
        return
    settings = {_MASTER: master} if master else {}
    is_local = master.startswith("local") if master else not _USERS & surroundings.keys()
    archive = ClassArchive(cache_folder(), java, surroundings)
    options = " ".join((*(_JAVA_OPTIONS if is_local else ()), *archive.options))
    try:
        start_java({**settings, "spark.driver.defaultJavaOptions": options})
    except PySparkRuntimeError:  # with the user's own options of Java they may be too much
        archive.forgo()
        start_java(settings)
    is_over = False
    try:
        yield
        is_over = True
    finally:
        if archive.is_made:
            doing("keeping the classes of Spark, so that later sessions start faster")
            archive.keep() if end_java(is_clean=is_over) else archive.forgo()


def _java() -> Path:
    home = java_home()
    found = find_java(home)
    if home is not None and home not in found.parents:
        raise MissingDependency(
            f"JAVA_HOME names {home}, where there is no Java that runs Spark",
            hint=f"correct JAVA_HOME, or unset it: {found} would do",
        )
    return found


def settings_of_user(*, is_submitted: bool) -> dict[str, str]:
    """Settings that the user made, by options of ``spark-submit``, PYSPARK_SUBMIT_ARGS or files: what Java has, without
    what ``spark-submit`` adds by itself."""
    SparkContext._ensure_initialized()  # noqa: SLF001  # a SparkConf has these once Java is connected
    added = {(_APP_NAME, Path(sys.argv[0]).name)}
    if not is_submitted:
        added = {(_APP_NAME, "pyspark-shell"), (_MASTER, "local[*]"), ("spark.ui.showConsoleProgress", "true")}
    return dict(item for item in SparkConf().getAll() if item not in added)
