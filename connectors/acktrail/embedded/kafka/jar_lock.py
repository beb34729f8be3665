"""The committed list of jars one Kafka release consists of, and the check of a folder against it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path

from acktrail.embedded.kafka.kafka_releases import release_of
from acktrail.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Jar:
    """One jar: its coordinates, its size in bytes and its sha256 in hexadecimal."""

    organisation: str
    name: str
    revision: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The name it has in the folder."""
        return f"{self.name}-{self.revision}.jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarLock:
    """All jars of one release of Kafka."""

    version: str
    jars: tuple[Jar, ...]

    @property
    def digest(self) -> str:
        """Names the content: another list of jars has another digest."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_json(self) -> str:
        """The text that is committed."""
        return json.dumps({"version": self.version, "jars": [asdict(jar) for jar in self.jars]}, indent=1) + "\n"

    def verify(self, folder: Path) -> None:
        """Raises ConfigurationError when `folder` holds anything but exactly these jars."""
        expected = {jar.file: jar for jar in self.jars}
        present = {entry.name for entry in folder.iterdir()}
        for name in sorted(expected.keys() | present):
            complaint = _complaint(folder / name, expected.get(name))
            if complaint:
                raise ConfigurationError(
                    f"Kafka {self.version} is not used: {name} in {folder} {complaint}",
                    hint="delete that folder and run again; if the file is wrong again, do not trust the repository "
                    "that serves it",
                    data={"folder": str(folder), "file": name},
                )


def _complaint(path: Path, jar: Jar | None) -> str:
    """What is wrong with one file, or nothing."""
    if jar is None:
        return "is not in its lock"
    if not path.is_file():
        return "is missing"
    return "" if sha256_of(path) == jar.sha256 else "does not match the sha256 in its lock"


def sha256_of(path: Path) -> str:
    """The sha256 of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_lock(version: str) -> JarLock:
    """The committed lock of a release. Raises UnknownName for a release that has none."""
    release_of(version)
    text = files("acktrail.embedded").joinpath("locks", f"kafka-{version}.json").read_text(encoding="utf-8")
    content = json.loads(text)
    return JarLock(version=content["version"], jars=tuple(Jar(**jar) for jar in content["jars"]))
