"""Kafka ready to run: a Java and a folder of verified jars."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acktrail import config
from acktrail.embedded.kafka.java import Java, find_java
from acktrail.embedded.kafka.kafka_jars import resolve
from acktrail.embedded.kafka.kafka_releases import DEFAULT_VERSION, Release, release_of

_QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
_SCRIPT_OPTIONS: Final = (
    *("-server", "-Xmx256M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A release of Kafka on this machine."""

    release: Release
    java: Java
    jars: Path

    def command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = _QUICK_START) -> tuple[str, ...]:
        """The command line that runs one of Kafka's main classes."""
        return (str(self.java.executable), *jvm_options, "-cp", f"{self.jars}/*", main_class, *arguments)

    def run(self, main_class: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a main class that ends by itself; its output as text."""
        return subprocess.run(
            self.command(main_class, *arguments), capture_output=True, text=True, errors="replace", check=False
        )


def log_option(role: str) -> str:
    """The JVM option that names the log configuration of a ``broker`` or of ``tools``."""
    return f"-Dlog4j2.configurationFile={(Path(__file__).parent / f'log4j2-{role}.properties').as_uri()}"


def install(
    version: str = DEFAULT_VERSION, *, java_home: Path | None = None, cache: Path | None = None
) -> Installation:
    """Find Java and fetch Kafka `version` if need be; `java_home` and `cache` default to `acktrail.config`'s.

    Raises MissingDependency, UnknownName, ConfigurationError (a jar is not what its lock says), RetryableError.
    """
    release = release_of(version)
    java = find_java(java_home or config.java_home())
    return Installation(
        release=release, java=java, jars=resolve(version, java=java, cache=cache or config.cache_folder())
    )


class KafkaTool:
    """Kafka's own command-line tools for a broker of `version`, on the jars of the release that published them."""

    def __init__(
        self, version: str = DEFAULT_VERSION, *, java_home: Path | None = None, cache: Path | None = None
    ) -> None:
        tools = release_of(version).tools_version
        self._installation = install(tools, java_home=java_home, cache=cache)

    def command(self, main_class: str, *arguments: str, jvm_options: Sequence[str] = _SCRIPT_OPTIONS) -> list[str]:
        """The command line of a tool, by its main class, for example
        ``org.apache.kafka.tools.consumer.group.ShareGroupCommand`` (kafka-share-groups.sh).

        The JVM is set as Kafka's own scripts set it; log lines go to standard error.
        """
        options = (*jvm_options, log_option("tools"))
        return list(self._installation.command(main_class, *arguments, jvm_options=options))
