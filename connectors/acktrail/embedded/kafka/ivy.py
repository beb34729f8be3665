"""Fetch jars with the Ivy that comes with PySpark."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from acktrail.embedded.process.guarded_process import GuardedProcess
from acktrail.errors import MissingDependency, RetryableError

_PATTERN: Final = "[organisation]/[artifact]-[revision].[ext]"
_POLL_S: Final = 0.1
_STEPS: Final = ("\tfound ", "\t[SUCCESSFUL ]")
_SETTINGS: Final = """<ivysettings>
 <property name="ivy.checksums" value=""/>
 <settings defaultResolver="central"/>
 <caches defaultCacheDir={cache}/>
 <resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"/></resolvers>
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


def dependency(organisation: str, name: str, revision: str, *, transitive: bool = False) -> str:
    """The element of an Ivy file for one module to fetch, with what it depends on or alone."""
    place = f"org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}"
    return f'  <dependency {place} transitive="{str(transitive).lower()}"/>'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ivy:
    """Ivy as it runs on the launcher `java`. Everything it reads and writes is inside `folder`."""

    java: Path
    folder: Path

    @property
    def cache(self) -> Path:
        """What it has downloaded so far: an interrupted fetch continues from here."""
        return self.folder / "cache"

    def retrieve(
        self,
        dependencies: Iterable[str],
        into: Path,
        *,
        with_metadata: bool = False,
        progress: Callable[[int], None] = lambda _done: None,
    ) -> None:
        """Put the jars of `dependencies` into ``into/<organisation>/<artifact>-<revision>.jar``.

        What is to be fetched with its own dependencies needs its metadata. `progress` is called with the steps done so
        far: two for each jar. Raises RetryableError when something cannot be fetched.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        settings, module, log_path = (self.folder / name for name in ("settings.xml", "ivy.xml", "ivy.log"))
        settings.write_text(_SETTINGS.format(cache=quoteattr(str(self.cache)), poms=str(with_metadata).lower()))
        module.write_text(_MODULE.format(dependencies="\n".join(dependencies)))
        log_path.write_text("")
        command = (
            *(str(self.java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"),
            *("-jar", str(ivy_jar()), "-settings", str(settings), "-ivy", str(module)),
            *("-types", "jar", "bundle", "-retrieve", f"{into}/{_PATTERN}"),
        )
        with GuardedProcess(command, log_path=log_path, grace_s=2.0) as process:
            is_over = False
            while not is_over:
                is_over = process.wait(_POLL_S) is not None
                log = log_path.read_text(errors="replace")
                progress(sum(log.count(step) for step in _STEPS))
        if process.poll() != 0:
            # Ivy's summary lists the modules that it did not find.
            names = [line.split(":: ")[1] for line in log.splitlines() if line.startswith("\t\t:: ") and "#" in line]
            missing = ", ".join(name.partition(": ")[0] for name in names[:3]) or "Kafka"
            raise RetryableError(
                f"Ivy could not fetch {missing}", hint=f"check the network and its proxy; see {log_path}"
            )


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
