"""Write the lock of a Kafka release again: ``python tools/lock_kafka.py VERSION...``.

Resolves what the release asks for, with its dependencies, and writes names and checksums of the jars to
``extras/acktrail_embedded/locks/``. Review the difference before committing it: locked jars are trusted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from acktrail.atomic_files import sha256_of
from acktrail.config import java_home
from acktrail.java import find_java
from acktrail_embedded.kafka.installation import TOOLS, Jar, JarLock, dependency, known_release, retrieve

LOG4J = {"4.1.2": "2.25.3", "4.2.1": "2.25.4", "4.3.1": "2.25.4", "4.4.0": "2.25.5"}
"""The log4j that each release of Kafka asks for itself."""
LOCKS = Path(__file__).parents[1] / "extras/acktrail_embedded/locks"


def lock_release(version: str, java: Path, folder: Path) -> JarLock:
    """Resolve `version` inside `folder`; its lock."""
    kafka, log4j, tools = "org.apache.kafka", "org.apache.logging.log4j", TOOLS.get(version, version)
    wanted = [
        dependency(kafka, "kafka_2.13", version, transitive=True),
        dependency(log4j, "log4j-slf4j-impl", LOG4J[version]),
    ]
    if tools == version:
        wanted.append(dependency(kafka, "kafka-tools", version))
    wanted.append(f'  <override org="{kafka}" module="kafka-tools-api" rev="{tools}"/>')
    into = folder / "jars"
    retrieve(wanted, into, java=java, folder=folder / "ivy", with_metadata=True)
    return JarLock(version=version, jars=tuple(sorted(_jar(path) for path in into.glob("*/*.jar"))))


def _jar(path: Path) -> Jar:
    name, _, revision = path.stem.rpartition("-")
    while "." not in revision:
        name, _, before = name.rpartition("-")
        revision = f"{before}-{revision}"
    size, sum_ = path.stat().st_size, sha256_of(path)
    return Jar(organisation=path.parent.name, name=name, revision=revision, size=size, sha256=sum_)


def main(versions: Sequence[str]) -> None:
    """Write the locks of `versions` into the source tree."""
    java = find_java(java_home())
    for version in versions:
        with tempfile.TemporaryDirectory() as folder:
            lock = lock_release(known_release(version), java, Path(folder))
        path = LOCKS / f"kafka-{version}.json"
        path.write_text(lock.to_json(), encoding="utf-8")
        print(f"{path}: {len(lock.jars)} jars")


if __name__ == "__main__":
    main(sys.argv[1:])
