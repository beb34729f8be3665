"""A Java home for the run of the tests whose JVMs load the classes of Kafka and Spark from archives (class data sharing
of the JDK), which halves the processor time of their start. `make test` makes it once a checkout."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pyspark
from servers.workload import Workload

from acktrail import config
from acktrail.java import find_java
from acktrail_embedded import DEFAULT_VERSION, EmbeddedBroker
from acktrail_embedded.kafka import embedded_broker
from acktrail_embedded.kafka.installation import install
from acktrail_jobs.session import end_java, spark_session

_RELEASES: Final = (DEFAULT_VERSION, "4.4.0")
_LAUNCHER: Final = """#!/bin/sh
# The real launcher, with the archive of the classes that it is about to load.
case "$*" in
{cases}
*) exec {java} "$@" ;;
esac
"""
_CASE: Final = '{pattern}) exec {java} {option}={archive} -Xlog:disable -Xlog:all=error:stderr "$@" ;;'


def main(home: Path) -> Path:
    """The Java home to use: `home`, complete; else, when archives cannot be made here, the one there is."""
    java = find_java(config.java_home()).resolve()
    wanted = _description(java)
    marker = home / "made-of"
    if marker.exists() and marker.read_text() == wanted:
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    sys.stderr.write("making archives of the classes of Kafka and Spark, once\n")
    try:
        archives = dict(_archives(home, java))
    except Exception as error:  # noqa: BLE001  # slower tests are better than none
        sys.stderr.write(f"class archives cannot be made, tests start slower: {error!r}\n")
        return java.parents[1]
    _write_launcher(home, java, "-XX:SharedArchiveFile", archives)
    with patch.dict(os.environ, JAVA_HOME=str(home)):
        _use_spark()
        end_java(is_clean=True)  # the next session starts another, and archives its classes
        _use_spark()
    marker.write_text(wanted)
    return home


def _description(java: Path) -> str:
    """An archive serves one Java, one Spark and one class path."""
    about = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    jars = [str(install(release).jars) for release in _RELEASES]
    return "\n".join([str(java), about, pyspark.__version__, *jars, sys.prefix, Path(__file__).read_text()])


def _archives(home: Path, java: Path) -> Iterator[tuple[str, Path]]:
    """What command lines contain that load from an archive, and the archive."""
    for release in _RELEASES:
        jars, archive = install(release).jars, home / f"kafka-{release}.jsa"
        broker = f"*{shlex.quote(str(jars))}/*kafka.Kafka*"
        _recorded(home, java, broker, archive, partial(_use_broker, release))
        yield f"*-cp\\ {shlex.quote(str(jars))}/*", archive  # also Kafka's tools: they have the same class path


def _recorded(home: Path, java: Path, pattern: str, archive: Path, use: Callable[[], None]) -> None:
    """`use` starts the JVM whose classes are archived when it ends."""
    _write_launcher(home, java, "-XX:ArchiveClassesAtExit", {pattern: archive})
    # A JVM writes the archive when it ends, which takes longer than a broker may take to end on a busy machine.
    with patch.dict(os.environ, JAVA_HOME=str(home)), patch.object(embedded_broker, "_GRACE_S", 200.0):
        use()
    if not archive.exists():
        raise FileNotFoundError(archive)


def _write_launcher(home: Path, java: Path, option: str, archives: dict[str, Path]) -> None:
    quoted = shlex.quote(str(java))
    cases = "\n".join(
        _CASE.format(pattern=pattern, java=quoted, option=option, archive=shlex.quote(str(archive)))
        for pattern, archive in archives.items()
    )
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(exist_ok=True)
    launcher.write_text(_LAUNCHER.format(cases=cases, java=quoted))
    launcher.chmod(0o755)


def _use_broker(release: str) -> None:
    with EmbeddedBroker(release) as broker:
        _use_share_group(Workload(broker.config()))


def _use_share_group(workload: Workload) -> None:
    workload.create_topic("archived")
    workload.produce("archived", 3)
    workload.acknowledge("archived", "archived", 3)


def _use_spark() -> None:
    with tempfile.TemporaryDirectory() as folder, spark_session("local[2]") as session:
        numbers = session.range(100).selectExpr("id % 10 as k", "cast(id as string) as text")
        numbers.write.parquet(f"{folder}/numbers")
        kept = session.read.parquet(f"{folder}/numbers").mapInArrow(lambda batches: batches, numbers.schema)
        kept.createOrReplaceTempView("kept")
        session.sql("select k, count(*), max(text) from kept group by k order by k").toArrow()


if __name__ == "__main__":
    sys.stdout.write(str(main(Path(sys.argv[1]).absolute())))
