"""A Spark session that behaves the same everywhere, except where the user's own settings say otherwise; and its Java.

Messages of Java go to the log: Airflow logs every line that a child process writes to stderr as an error of the task,
and Spark's banner is none.

The classes that Java loads are kept in a file of the user's cache. This is class data sharing of the JDK, which halves
the processor time of a session's start. The second session on a Java, a PySpark and a class path writes it when it
ends, which costs as much as two or three starts: a container that starts one session has no use for it. Later sessions
map it. Java checks it against its own version and against the jars, and starts without it where they differ. So no file
is ever needed: none is used that somebody else could have written, none is made where Java cannot (a folder on the
class path that holds files, such as SPARK_CONF_DIR), and one session makes it where several start at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import socket
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from threading import Thread
from typing import IO, Final
from urllib.parse import urlsplit

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from acktrail.activity import doing
from acktrail.config import cache_folder, environment, java_home, spark_on_loopback
from acktrail.errors import ConfigurationError, MissingDependency, RetryableError
from acktrail.java import find_java

DEFAULT_MASTER: Final = "local[2]"
_MASTER: Final = "spark.master"
_APP_NAME: Final = "spark.app.name"
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    _APP_NAME: "acktrail",
}
CONNECT: Final = "sc://"
_PYTHONS: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
_LOGGING: Final = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA_OPTIONS: Final = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f'"-Dlog4j2.configurationFile={_LOGGING}"'),
    *("-XX:-ShrinkHeapInSteps", "-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40"),
)
_LOCAL: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "acktrail_jobs.worker_daemon",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""A local master needs no network: it must not depend on what the machine's name resolves to. It lives for seconds, so
that compiling its own code twice costs more than it saves (with both options of Java, a first job takes half the CPU
time), and so does compiling code for the few rows that workers leave. On a cluster nothing of it is set."""
_OWN: Final = re.compile(r"local(\[.*\])?")
"""Masters that run all of Spark in one Java."""
_AUTHENTICATED: Final = {"spark.authenticate": "true"}
"""Spark's own ports, on loopback, take Java objects from any account of the machine that has not to know a secret. Such
a master makes one and keeps it in memory; others need it from the user."""
_END_S: Final = 120.0
_CONNECT_S: Final = 5.0
_PORTS: Final = {"spark": 7077, "sc": 15002, "k8s": 443}
"""Schemes of masters that have an address, and their ports where it names none."""
_log: Final = logging.getLogger("acktrail.spark")
_BANNER: Final = (
    "WARNING: Using incubator modules",
    "Setting default log level to",
    "To adjust logging level use",
    "Using Spark's default log4j profile",
    "WARNING: package sun.security.action not in java.base",
)
_LEVELS: Final = logging.getLevelNamesMapping()
"""The levels of Spark's logging have the names of Python's."""
_ON_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_NOT_IN_AN_OPTION: Final = frozenset('":\\')
_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""Java writes warnings about an archive that it does not use to stdout."""


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
    MissingDependency (no Java that runs Spark), RetryableError (nothing listens at the master's address),
    ConfigurationError (its host is not known).
    """
    running = running_session()
    if running is not None:
        yield running
        return
    surroundings = environment()
    remote = surroundings.get("SPARK_REMOTE") if master is None else master
    check_listens(remote or "")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        if remote and (master is None or remote.startswith(CONNECT)):
            settings = {} if remote.startswith(CONNECT) else {**_SETTINGS, **_LOCAL}
            # With a token, PySpark speaks TLS to every other name of this machine.
            address = remote.replace("sc://127.0.0.1", "sc://localhost")
            session = SparkSession.builder.config(map=settings).remote(address).getOrCreate()
            try:
                yield session
            finally:  # before Spark 4.3 it is no context manager
                session.stop()
        else:
            with _driver(master, surroundings, more) as session:
                yield session


def check_listens(master: str) -> None:
    """Pass when something listens at an address of `master`, or it has none: Spark itself tries for more than a minute.
    Raises as `spark_session`."""
    scheme, _, rest = master.partition("://")
    if scheme not in _PORTS:
        return
    named = re.split("[/;]", rest.removeprefix("https://"))[0]  # a token may follow
    places = [urlsplit(f"//{each}") for each in named.split(",")]
    tried = (_fault_of(place.hostname or "", place.port or _PORTS[scheme]) for place in places)
    faults = [fault for fault in tried if fault is not None]
    if len(faults) == len(places):
        is_unknown = all(isinstance(fault, socket.gaierror) for fault in faults)
        raise (ConfigurationError if is_unknown else RetryableError)(
            f"Spark does not answer at {scheme}://{named}: {faults[-1].strerror or faults[-1]}",
            hint="start it, or name another: --master, ACKTRAIL_SPARK_MASTER, or the Airflow connection to Spark",
        )


def _fault_of(host: str, port: int) -> OSError | None:
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except OSError as error:
        return error
    return None


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
        own = {**_LOCAL, **(_AUTHENTICATED if _OWN.fullmatch(chosen) else {})} if chosen.startswith("local") else {}
        defaults = {**_SETTINGS, **own, **more}
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
    said = _said_by_user(surroundings)
    is_local = master.startswith("local") if master else not re.search(r"--master|spark\.master\b", said)
    own = _JAVA_OPTIONS if is_local and not re.search("(?i)java-?options", said) else ()
    archive = ClassArchive(cache_folder(), java, surroundings)
    options = " ".join((*own, *archive.options))
    with spark_on_loopback() if is_local else nullcontext():
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


def _said_by_user(surroundings: Mapping[str, str]) -> str:
    """The user's options for ``spark-submit``, and the lines of their defaults file."""
    folder = surroundings.get("SPARK_CONF_DIR") or f"{_spark_home(surroundings)}/conf"
    lines = [surroundings.get("PYSPARK_SUBMIT_ARGS", "")]
    with suppress(OSError):
        lines += Path(folder, "spark-defaults.conf").read_text("utf-8", "replace").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _spark_home(surroundings: Mapping[str, str]) -> str:
    return surroundings.get("SPARK_HOME", str(Path(pyspark.__file__).parent))


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


class ClassArchive:
    """The archive for `java` and `environment` in the folder `cache`, made by this session where there is none."""

    def __init__(self, cache: Path, java: Path, environment: Mapping[str, str]) -> None:
        self.options: tuple[str, ...] = ()
        """What Java is started with; nothing where it starts without an archive."""
        self._lock: IO[str] | None = None
        self._file = cache / "spark" / f"{_key(java, environment)}.jsa"
        self._made = self._file.with_suffix(f".{os.getpid()}.new")
        try:
            if not _NOT_IN_AN_OPTION & set(str(self._file)):
                self._choose(environment)
        except OSError:  # a folder of somebody else, or another session makes it
            self.forgo()

    @property
    def is_made(self) -> bool:
        """Whether this session's Java writes the archive when it ends."""
        return self._lock is not None

    def keep(self) -> None:
        """Let later sessions use what Java has written. Call it once Java has ended as it should."""
        with suppress(OSError):
            size = self._made.stat().st_size
            self._made.replace(self._file)
            if self._lock is not None:
                self._lock.truncate(0)
                self._lock.write(str(size))
        self.forgo()

    def forgo(self) -> None:
        """Make none: what Java writes is not used, and another session may make one."""
        self.options = ()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _choose(self, environment: Mapping[str, str]) -> None:
        folder, mark = self._file.parent, self._file.with_suffix(".lock")
        if self._file.exists():
            is_whole = str(self._file.stat().st_size) == mark.read_text()  # Java would map what is not there
            if is_whole and _is_own(self._file) and _is_own(folder):
                self.options = (f'"-XX:SharedArchiveFile={self._file}"', *_QUIET)
        elif not mark.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.touch()
        elif not any(any(Path(folder).glob("*")) for folder in _class_path(environment)):
            self._lock = mark.open("r+")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in folder.glob("*.new"):
                left.unlink()
            self.options = (f'"-XX:ArchiveClassesAtExit={self._made}"', *_QUIET)


def _key(java: Path, environment: Mapping[str, str]) -> str:
    """Another Java, PySpark or class path has another archive."""
    launcher = java.resolve()
    parts = (launcher, launcher.stat().st_mtime_ns, pyspark.__version__, *_class_path(environment))
    return f"{pyspark.__version__}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _class_path(environment: Mapping[str, str]) -> list[str]:
    """Spark's configuration first."""
    named = (environment[name] for name in _ON_CLASS_PATH if environment.get(name))
    return [f"{_spark_home(environment)}/conf", *named]


def _is_own(path: Path) -> bool:
    """Whether no other user can have written it: it is code that Java runs."""
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def start_java(settings: Mapping[str, str]) -> None:
    """Start the Java of a session with `settings`, whose messages go to the logger ``acktrail.spark``."""
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    gateway = launch_gateway(conf, popen_kwargs={"stderr": PIPE, "text": True, "errors": "replace"})
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # what a SparkContext does with its own
    Thread(target=_log_lines, args=(gateway.proc.stderr,), name="java-messages", daemon=True).start()


def end_java(*, is_clean: bool) -> bool:
    """End the Java of this process, so that another one can start. `is_clean`: let it do what it does at its end, for
    two minutes at most; whether it ended as it should."""
    gateway = SparkContext._gateway  # noqa: SLF001  # as above
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # a stopped context leaves them
    gateway.shutdown()
    if is_clean:
        gateway.proc.stdin.close()
        with suppress(TimeoutExpired):
            return gateway.proc.wait(_END_S) == 0
    gateway.proc.kill()
    return False


def wait_for_java() -> int:
    """Wait until the Java of this process ends; its exit code."""
    return int(SparkContext._gateway.proc.wait())  # noqa: SLF001  # as above


def level_of(line: str, before: int = logging.WARNING) -> int:
    """The level of a line: its own where Spark's logging wrote it (date, time, level), that of the line `before` where
    it belongs to a stack trace, debug for the banner of Java and Spark, else a warning."""
    if line.startswith(_BANNER):
        return logging.DEBUG
    words = line.split(maxsplit=3)
    if len(words) > 2 and words[2] in _LEVELS:
        return _LEVELS[words[2]]
    is_trace = line.startswith(("\t", " ", "Caused by:", "org.", "java."))
    return before if is_trace else logging.WARNING


def _log_lines(stderr: IO[str]) -> None:
    level = logging.WARNING
    for line in stderr:
        text = line.rstrip("\n")
        level = level_of(text, level)
        if text:
            _log.log(level, "%s", text)
