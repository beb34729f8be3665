"""Kafka ready to run: the releases that can run embedded, a Java, and the jars of a release, fetched once, kept in the
user's cache, checked against the committed lock at every use."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from acktrail import config
from acktrail.atomic_files import sha256_of
from acktrail.errors import ConfigurationError, MissingDependency, RetryableError, UnknownName
from acktrail.java import find_java
from acktrail.package_data import install_hint
from acktrail.text_parsing import parse_json
from acktrail.text_tables import StepLines
from acktrail_embedded.process.guarded_process import GuardedProcess

DEFAULT_VERSION: Final = "4.3.1"
RELEASES: Final[Mapping[str, tuple[str, ...]]] = {
    "4.1.2": ("--feature", "share.version=1"),
    "4.2.1": (),
    "4.3.1": (),
    "4.4.0": (),
}
"""Releases, each with what ``StorageTool format`` needs for share groups to be on."""
TOOLS: Final = {"4.4.0": "4.3.1"}
"""Releases without kafka-tools and kafka-tools-api of their own, and the one whose tools serve them: these need that
one's other jars."""
_PATTERN: Final = "[organisation]/[artifact]-[revision].[ext]"
_QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A release of Kafka on this machine."""

    version: str
    java: Path
    jars: Path

    def command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = _QUICK_START) -> tuple[str, ...]:
        """The command line that runs one of Kafka's main classes."""
        return (str(self.java), *jvm_options, "-cp", f"{self.jars}/*", main_class, *arguments)


def install(version: str = DEFAULT_VERSION) -> Installation:
    """Find Java and fetch Kafka `version` if need be.

    Raises MissingDependency, UnknownName, ConfigurationError (a jar is not what its lock says), RetryableError.
    """
    version, java = known_release(version), find_java(config.java_home())
    jars = resolve(read_lock(version), java=java, cache=config.cache_folder())
    return Installation(version=version, java=java, jars=jars)


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
        for name in sorted(expected.keys() | {entry.name for entry in folder.iterdir()}):
            path = folder / name
            if name not in expected:
                complaint = "is not in its lock"
            elif not path.is_file():
                complaint = "is missing"
            elif sha256_of(path) != expected[name].sha256:
                complaint = "does not match the sha256 in its lock"
            else:
                continue
            raise ConfigurationError(
                f"Kafka {self.version} is not used: {name} in {folder} {complaint}",
                hint="delete that folder and run again; if the file is wrong again, do not trust the repository "
                "that serves it",
                data={"folder": str(folder), "file": name},
            )


def read_lock(version: str) -> JarLock:
    """The committed lock of a release. Raises UnknownName for a release that has none."""
    known_release(version)
    text = files("acktrail_embedded").joinpath("locks", f"kafka-{version}.json").read_text(encoding="utf-8")
    content = parse_json(text)
    return JarLock(version=content["version"], jars=tuple(Jar(**jar) for jar in content["jars"]))


def resolve(lock: JarLock, *, java: Path, cache: Path) -> Path:
    """The folder with exactly the jars of `lock`, below `cache`; fetched when they are not there. Any number of
    processes may ask at once: one fetches, the others wait for it. Raises ConfigurationError (a jar is not what the
    lock says; nothing of it is used), RetryableError.
    """
    home = cache / "kafka"
    folder = home / f"{lock.version}-{lock.digest}"
    if not folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        with (home / "fetch.lock").open("w") as lock_file:
            fcntl.flock(lock_file, fcntl.LOCK_EX)  # until the process closes it, or ends
            if not folder.is_dir():
                _fetch(lock, folder, java)
    lock.verify(folder)
    return folder


def dependency(organisation: str, name: str, revision: str, *, transitive: bool = False) -> str:
    """The element of an Ivy file for one module to fetch, with what it depends on or alone."""
    place = f"org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    return f'  <dependency {place} transitive="{str(transitive).lower()}"/>'


def retrieve(dependencies: Iterable[str], into: Path, *, java: Path, folder: Path, with_metadata: bool = False) -> None:
    """Put the jars of `dependencies` into ``into/<organisation>/<artifact>-<revision>.jar`` with the Ivy of PySpark.

    Everything Ivy reads and writes is inside `folder`; what it has downloaded is in ``cache/`` there, from where an
    interrupted fetch continues. What is to be fetched with its own dependencies needs its metadata. Raises
    RetryableError when something cannot be fetched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings, module, log_path = (folder / name for name in ("settings.xml", "ivy.xml", "ivy.log"))
    templates = [files("acktrail_embedded.kafka").joinpath(f"ivy-{name}.xml") for name in ("settings", "module")]
    ours, wanted = (template.read_text("utf-8") for template in templates)
    settings.write_text(ours.format(cache=quoteattr(str(folder / "cache")), poms=str(with_metadata).lower()))
    module.write_text(wanted.format(dependencies="\n".join(dependencies)))
    log_path.write_text("")
    command = (
        *(str(java), *_QUICK_START),
        *("-jar", str(ivy_jar()), "-settings", str(settings), "-ivy", str(module)),
        *("-types", "jar", "bundle", "-retrieve", f"{into}/{_PATTERN}"),
    )
    with GuardedProcess(command, log_path=log_path, grace_s=2.0) as process:
        process.wait()
    if process.poll() != 0:
        # Ivy's summary lists the modules that it did not find.
        lines = log_path.read_text(errors="replace").splitlines()
        names = [line.split(":: ")[1] for line in lines if line.startswith("\t\t:: ") and "#" in line]
        missing = ", ".join(name.partition(": ")[0] for name in names[:3]) or "Kafka"
        raise RetryableError(f"Ivy could not fetch {missing}", hint=f"check the network and its proxy; see {log_path}")


def ivy_jar() -> Path:
    """Ivy's jar in the installed PySpark, which is not imported for it. Raises MissingDependency without PySpark."""
    found = importlib.util.find_spec("pyspark")
    places = tuple(found.submodule_search_locations or ()) if found else ()
    jars = sorted(jar for place in places for jar in Path(place, "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingDependency(
            "PySpark is not installed, and its Ivy is needed to fetch Kafka", hint=install_hint("spark")
        )
    return jars[-1]


def _fetch(lock: JarLock, folder: Path, java: Path) -> None:
    """Fetch into a folder beside `folder`, verify there, then rename: `folder` is complete or does not exist."""
    ivy = folder.parent / "ivy"
    for stale in folder.parent.glob("staging-*"):
        shutil.rmtree(stale)
    staging = Path(tempfile.mkdtemp(prefix="staging-", dir=folder.parent))
    size_mb = sum(jar.size for jar in lock.jars) / 1e6
    # The lock names every jar, so nothing is resolved transitively and no metadata is read.
    wanted = [dependency(jar.organisation, jar.name, jar.revision) for jar in lock.jars]
    try:
        with StepLines() as lines:
            lines.say(f"Fetching Kafka {lock.version} ({len(lock.jars)} jars, {size_mb:.0f} MB)")
        fetched = staging / "fetched"
        retrieve(wanted, fetched, java=java, folder=ivy)
        jars = staging / "jars"
        jars.mkdir()
        for jar in fetched.glob("*/*.jar"):
            jar.rename(jars / jar.name)
        try:
            lock.verify(jars)
        except Exception:
            shutil.rmtree(ivy / "cache", ignore_errors=True)
            raise
        os.replace(jars, folder)
        shutil.rmtree(ivy, ignore_errors=True)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def known_release(version: str) -> str:
    """`version`. Raises UnknownName with the versions that exist."""
    if version not in RELEASES:
        raise UnknownName("Kafka version", version, nearest=tuple(RELEASES))
    return version
