"""Kafka's own command-line tools, with the JVM set as Kafka's own scripts set it."""

from __future__ import annotations

from pathlib import Path

from acktrail_embedded.kafka.installation import TOOLS, install

_LOG = Path(__file__).parent / "java" / "log4j2-tools.properties"
_OPTIONS = (
    *("-server", "-Xmx256M", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", f"-Dlog4j2.configurationFile={_LOG.as_uri()}"),
)


def kafka_tool(version: str, main_class: str, *arguments: str) -> list[str]:
    """The command line of a tool, by its main class, for a broker of `version`, on the jars of the release that
    published the tools; log lines go to standard error."""
    installation = install(TOOLS.get(version, version))
    return list(installation.command(main_class, *arguments, jvm_options=_OPTIONS))
