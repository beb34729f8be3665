"""Write the lock of a Kafka release again: ``python -m acktrail.embedded.relock VERSION...``.

For maintainers. Resolves what the release asks for, with its dependencies, and writes names and checksums of the
jars to ``locks/``. Review the difference before committing it: locked jars are trusted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from acktrail.config import java_home
from acktrail.embedded.kafka.ivy import Dependency, Ivy
from acktrail.embedded.kafka.jar_lock import Jar, JarLock, sha256_of
from acktrail.embedded.kafka.java import find_java
from acktrail.embedded.kafka.kafka_releases import Release, release_of


def lock_release(release: Release, ivy: Ivy, into: Path) -> JarLock:
    """Resolve `release` into the folder `into`; its lock."""
    kafka, log4j = "org.apache.kafka", "org.apache.logging.log4j"
    wanted = [
        Dependency(organisation=kafka, name="kafka_2.13", revision=release.version, transitive=True),
        Dependency(organisation=log4j, name="log4j-slf4j-impl", revision=release.log4j_version),
    ]
    if release.tools_version == release.version:
        wanted.append(Dependency(organisation=kafka, name="kafka-tools", revision=release.version))
    ivy.retrieve(wanted, into, overrides={"kafka-tools-api": release.tools_version})
    return JarLock(version=release.version, jars=tuple(sorted(_jar(path) for path in into.glob("*/*.jar"))))


def _jar(path: Path) -> Jar:
    name, _, revision = path.stem.rpartition("-")
    while "." not in revision:
        name, _, before = name.rpartition("-")
        revision = f"{before}-{revision}"
    return Jar(
        organisation=path.parent.name,
        name=name,
        revision=revision,
        size=path.stat().st_size,
        sha256=sha256_of(path),
    )


def main(versions: Sequence[str]) -> None:
    """Write the locks of `versions` into the source tree."""
    java = find_java(java_home())
    for version in versions:
        release = release_of(version)
        with tempfile.TemporaryDirectory() as folder:
            lock = lock_release(release, Ivy(java=java, folder=Path(folder, "ivy")), Path(folder, "jars"))
        path = Path(__file__).parent / "locks" / f"kafka-{version}.json"
        path.write_text(lock.to_json(), encoding="utf-8")
        sys.stdout.write(f"{path}: {len(lock.jars)} jars\n")


if __name__ == "__main__":
    main(sys.argv[1:])
