"""Fetch jars with the Ivy that comes with PySpark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from acktrail.embedded.kafka.java import Java
from acktrail.embedded.process.guarded_process import GuardedProcess
from acktrail.errors import MissingDependency, RetryableError

_PATTERN: Final = "[organisation]/[artifact]-[revision].[ext]"
_POLL_S: Final = 0.1
_STEPS: Final = ("\tfound ", "\t[SUCCESSFUL ]")
_SETTINGS: Final = """<ivysettings>
 <property name="ivy.checksums" value=""/>
 <settings defaultResolver="central"/>
 <caches defaultCacheDir={cache}/>
 <resolvers><ibiblio name="central" m2compatible="true" usepoms={poms}/></resolvers>
</ivysettings>
"""
_MODULE: Final = """<ivy-module version="2.0">
 <info organisation="acktrail" module="kafka"/>
 <configurations><conf name="default"/></configurations>
 <dependencies defaultconf="default->default">
{dependencies}
 </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """One module to fetch, with what it depends on or alone."""

    organisation: str
    name: str
    revision: str
    transitive: bool = False

    def to_xml(self) -> str:
        """Its element in an Ivy file."""
        return (
            f"  <dependency org={quoteattr(self.organisation)} name={quoteattr(self.name)} "
            f'rev={quoteattr(self.revision)} transitive="{str(self.transitive).lower()}"/>'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ivy:
    """Ivy as it runs on `java`. Everything it reads and writes is inside `folder`."""

    java: Java
    folder: Path

    @property
    def cache(self) -> Path:
        """What it has downloaded so far: an interrupted fetch continues from here."""
        return self.folder / "cache"

    @property
    def log_path(self) -> Path:
        """What it printed, last fetch only."""
        return self.folder / "ivy.log"

    def retrieve(
        self,
        dependencies: Iterable[Dependency],
        into: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Put the jars of `dependencies` into ``into/<organisation>/<artifact>-<revision>.jar``.

        Metadata is read only when a dependency is transitive; `overrides` are revisions of org.apache.kafka modules.
        `progress` is called with the steps done so far: two for each jar.
        Raises RetryableError when something cannot be fetched.
        """
        wanted = tuple(dependencies)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path.unlink(missing_ok=True)
        command = self._command(wanted, into, overrides or {})
        with GuardedProcess(command, log_path=self.log_path, grace_s=2.0) as process:
            while process.wait(_POLL_S) is None:
                progress(self._steps_done())
            progress(self._steps_done())
        if process.poll() != 0:
            raise RetryableError(
                f"Ivy could not fetch {self._missing()}", hint=f"check the network and its proxy; see {self.log_path}"
            )

    def _command(self, wanted: tuple[Dependency, ...], into: Path, overrides: Mapping[str, str]) -> tuple[str, ...]:
        transitive = any(dependency.transitive for dependency in wanted)
        settings = self.folder / "settings.xml"
        settings.write_text(_SETTINGS.format(cache=quoteattr(str(self.cache)), poms=f'"{str(transitive).lower()}"'))
        module = self.folder / "ivy.xml"
        module.write_text(_MODULE.format(dependencies="\n".join(_lines(wanted, overrides))))
        return (
            *(str(self.java.executable), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
            *("-jar", str(ivy_jar()), "-settings", str(settings), "-ivy", str(module)),
            *("-types", "jar", "bundle", "-retrieve", f"{into}/{_PATTERN}"),
        )

    def _steps_done(self) -> int:
        log = self._log()
        return sum(log.count(step) for step in _STEPS)

    def _log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _missing(self) -> str:
        """The modules that Ivy's summary lists as not found."""
        lines = self._log().splitlines()
        names = [line.split(":: ")[1] for line in lines if line.startswith("\t\t:: ") and "#" in line]
        return ", ".join(name.partition(": ")[0] for name in names[:3]) or "Kafka"


def _lines(wanted: tuple[Dependency, ...], overrides: Mapping[str, str]) -> Iterable[str]:
    yield from (dependency.to_xml() for dependency in wanted)
    for name, revision in overrides.items():
        yield f'  <override org="org.apache.kafka" module={quoteattr(name)} rev={quoteattr(revision)}/>'


def ivy_jar() -> Path:
    """Ivy's jar in the installed PySpark, which is not imported for it.

    Raises MissingDependency when there is no PySpark.
    """
    found = importlib.util.find_spec("pyspark")
    places = tuple(found.submodule_search_locations or ()) if found else ()
    jars = sorted(jar for place in places for jar in Path(place, "jars").glob("ivy-*.jar"))
    if not jars:
        raise MissingDependency(
            "PySpark is not installed, and its Ivy is needed to fetch Kafka", hint="install acktrail[spark]"
        )
    return jars[-1]
