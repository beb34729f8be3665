"""A Spark session that behaves the same everywhere, except where the user's own settings say otherwise."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from acktrail.config import environment, java_home
from acktrail.embedded.kafka.java import find_java
from acktrail.errors import MissingDependency
from acktrail_jobs.java_messages import start_java

DEFAULT_MASTER: Final = "local[2]"
_SETTINGS: Final = MappingProxyType(
    {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning",
    }
)
"""Executors reduce rows before they reach the JVM: compiling code for the rest would be more work than the rest."""
_CONNECT: Final = "sc://"
_NAME_OF_APP: Final = "acktrail"
_PYTHONS: Final = frozenset({"spark.pyspark.python", "spark.pyspark.driver.python"})
_LOGGING: Final = Path(__file__).with_name("log4j2.properties").as_uri()
_JAVA_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f'"-Dlog4j2.configurationFile={_LOGGING}"')
_LOCAL: Final = MappingProxyType(
    {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
    }
)
"""A local master needs no network: it must not depend on what the machine's name resolves to. It lives for seconds, so
that compiling its own code twice costs more than it saves (with both options, a first job takes half the CPU time)."""
_DEFAULTS: Final = "spark-defaults.conf"
_NAME: Final = re.compile(r"\s*([^\s=:#!][^\s=:]*)")
_OPTIONS: Final[Mapping[str, str]] = {
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-memory": "spark.driver.memory",
}


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """The session that runs in this process, as it is; else a new one on `master` that ends with the block.

    `master` is a cluster's, or a Spark Connect server's (``sc://host:15002``), whose Python workers must be able to
    import acktrail. None: what ``spark-submit`` or SPARK_REMOTE says, else two local threads. Python workers run this
    interpreter unless the environment names another (PYSPARK_PYTHON). A setting that the user makes (``--conf``,
    spark-defaults.conf, the server's own) stays as it is. Raises MissingDependency (no Java that runs Spark).
    """
    running = running_session()
    if running is not None:
        yield running
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        session = _new_session(master)
        try:
            yield session
        finally:
            session.stop()


def parallelism(session: SparkSession) -> int:
    """How many tasks run at once; for a Connect server that does not report it, the partitions of a shuffle."""
    if "connect" not in type(session).__module__.split("."):
        return int(session.sparkContext.defaultParallelism)
    said = session.conf.get("spark.default.parallelism", None) or session.conf.get("spark.sql.shuffle.partitions")
    return int(said or 1)


def running_session() -> SparkSession | None:
    """The session of this thread, or one on the context that another thread made."""
    active = SparkSession.getActiveSession()
    if active is not None or SparkContext._active_spark_context is None:  # noqa: SLF001  # there is no public way to ask
        return active
    return SparkSession.builder.getOrCreate()


def _new_session(master: str | None) -> SparkSession:
    surroundings = environment()
    remote = surroundings.get("SPARK_REMOTE") if master is None else master
    if remote and remote.startswith(_CONNECT):
        return _configured({}).remote(remote).getOrCreate()
    if remote and master is None:
        return _configured(_SETTINGS).remote(remote).getOrCreate()
    is_submitted = "PYSPARK_GATEWAY_PORT" in surroundings
    chosen = master or (None if is_submitted else DEFAULT_MASTER)
    if not is_submitted:
        _ensure_java()
    defaults = {**_SETTINGS, **(_LOCAL if chosen and chosen.startswith("local") else {})}
    chosen_by_user = submitted_settings() if is_submitted else user_settings(surroundings)
    settings = {name: value for name, value in defaults.items() if name not in chosen_by_user}
    builder = _configured(settings)
    if not is_submitted:
        start_java({**settings, **({"spark.master": chosen} if chosen else {}), "spark.app.name": _NAME_OF_APP})
    if chosen:
        builder = builder.master(chosen)
    session = builder.getOrCreate()
    if "spark.log.level" not in chosen_by_user:
        session.sparkContext.setLogLevel("ERROR")
    if "PYSPARK_PYTHON" not in surroundings and not chosen_by_user & _PYTHONS:
        session.sparkContext.pythonExec = sys.executable
    return session


def _configured(settings: Mapping[str, str]) -> SparkSession.Builder:
    return SparkSession.builder.appName(_NAME_OF_APP).config(map=dict(settings))


def _ensure_java() -> None:
    home = java_home()
    found = find_java(home)
    if home is not None and home not in found.parents:
        raise MissingDependency(
            f"JAVA_HOME names {home}, where there is no Java that runs Spark",
            hint=f"correct JAVA_HOME, or unset it: {found} would do",
        )


def user_settings(environment: Mapping[str, str]) -> frozenset[str]:
    """Settings in the ``spark-defaults.conf`` that Spark reads (SPARK_CONF_DIR, else SPARK_HOME/conf), and those in
    PYSPARK_SUBMIT_ARGS: where PySpark starts its own Java."""
    arguments = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    files = [Path(folder) / _DEFAULTS] if folder else []
    files += [Path(value) for option, value in _pairs(arguments) if option == "--properties-file"]
    return frozenset([*_of_arguments(arguments), *(name for file in files for name in _of_file(file))])


def submitted_settings() -> frozenset[str]:
    """Settings that ``spark-submit`` was given, by options, ``--conf`` or its files: in the Java it has started."""
    SparkContext._ensure_initialized()  # noqa: SLF001  # a SparkConf has these once Java is connected
    return frozenset(name for name, _ in SparkConf().getAll())


def _of_file(file: Path) -> Iterator[str]:
    """Names in a Java properties file; none where there is no such file."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        if found := _NAME.match(line):
            yield found[1]


def _of_arguments(arguments: Sequence[str]) -> Iterator[str]:
    for option, value in _pairs(arguments):
        if option in ("--conf", "-c"):
            yield value.partition("=")[0]
        elif option in _OPTIONS:
            yield _OPTIONS[option]


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with its value, written as two words or with ``=``."""
    for word, after in zip(arguments, [*arguments[1:], ""], strict=False):
        option, is_one, value = word.partition("=")
        yield (option, value) if is_one and option.startswith("--") else (word, after)
