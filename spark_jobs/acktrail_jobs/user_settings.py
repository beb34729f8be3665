"""Names of the Spark settings that the user makes: acktrail's own values must not replace these."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext

_DEFAULTS: Final = "spark-defaults.conf"
_NAME: Final = re.compile(r"\s*([^\s=:#!][^\s=:]*)")
_OPTIONS: Final[Mapping[str, str]] = {
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-memory": "spark.driver.memory",
}


def user_settings(environment: Mapping[str, str]) -> frozenset[str]:
    """Settings in the ``spark-defaults.conf`` that Spark reads (SPARK_CONF_DIR, else SPARK_HOME/conf), and those in
    PYSPARK_SUBMIT_ARGS: where PySpark starts its own Java."""
    arguments = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
    files = [folder / _DEFAULTS for folder in _folders(environment)][:1]
    files += [Path(value) for option, value in _pairs(arguments) if option == "--properties-file"]
    return frozenset([*_of_arguments(arguments), *(name for file in files for name in _of_file(file))])


def submitted_settings() -> frozenset[str]:
    """Settings that ``spark-submit`` was given, by options, ``--conf`` or its files: in the Java it has started."""
    SparkContext._ensure_initialized()  # noqa: SLF001  # a SparkConf has these once Java is connected
    return frozenset(name for name, _ in SparkConf().getAll())


def _folders(environment: Mapping[str, str]) -> Iterator[Path]:
    if folder := environment.get("SPARK_CONF_DIR"):
        yield Path(folder)
    if home := environment.get("SPARK_HOME"):
        yield Path(home) / "conf"


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
