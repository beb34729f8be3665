"""The JMX exporter of Prometheus, fetched once as Kafka's jars are, and asked about the JVM of a broker."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from drivers.own_process import printed
from servers.fetched_jars import fetched_jars

from acktrail.embedded.kafka.installation import find_java

__all__ = ["BrokerMetrics", "ask"]

_JAR: Final = {
    ("io.prometheus.jmx", "jmx_prometheus_javaagent", "1.0.1"): (
        "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1"
    )
}
_PROGRAM: Final = Path(__file__).with_name("ShareMetrics.java")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMetrics:
    """`beans`: attributes of MBeans in the form that the exporter's patterns are about; `text`: what it shows."""

    beans: tuple[str, ...]
    text: str


def ask(pid: int, rules: Path, folder: Path) -> BrokerMetrics:
    """What the exporter makes of the JVM `pid` by the file of `rules`; skips the test without a JDK or the exporter."""
    compiler = shutil.which("javac")
    if compiler is None:
        pytest.skip("no javac: a JDK is needed to compile the program that asks the broker's JVM")
    jar = f"{fetched_jars('jmx-exporter', _JAR)}/*"
    printed(compiler, "-cp", jar, "-d", folder, _PROGRAM)
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jar}", "ShareMetrics", str(pid), rules]
    lines = printed(*command).splitlines()
    beans = [line.removeprefix("mbean ") for line in lines if line.startswith("mbean ")]
    return BrokerMetrics(
        beans=tuple(map(_exporter_form, beans)), text="\n".join(line for line in lines if not line.startswith("mbean "))
    )


def _exporter_form(bean: str) -> str:
    """``kafka.server:type=A,name=B`` and an attribute as ``kafka.server<type=A, name=B><>attribute``."""
    name, _, attribute = bean.partition("\t")
    domain, _, rest = name.partition(":")
    parts = re.findall(r'(?:"(?:\\.|[^"])*"|[^,"])+', rest)
    return f"{domain}<{', '.join(parts)}><>{attribute}"
