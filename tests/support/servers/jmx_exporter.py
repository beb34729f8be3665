"""The JMX exporter of Prometheus, fetched once as Kafka's jars are, and asked about the JVM of a broker."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from acktrail import config
from acktrail.embedded.kafka.installation import dependency, find_java, retrieve, sha256_of
from acktrail.errors import RetryableError

__all__ = ["BrokerMetrics", "ask"]

_ORGANISATION: Final = "io.prometheus.jmx"
_MODULE: Final = ("jmx_prometheus_javaagent", "1.0.1")
_SHA256: Final = "7d61f737fd661610ccc14aea79764faa1ea94a340cbc8f0029b3d2edea3d80c1"
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
    jar = _jar()
    done = subprocess.run([compiler, "-cp", jar, "-d", folder, _PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", f"{folder}:{jar}", "ShareMetrics", str(pid), rules]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert asked.returncode == 0, asked.stderr[-4_000:]
    lines = asked.stdout.splitlines()
    beans = [line.removeprefix("mbean ") for line in lines if line.startswith("mbean ")]
    return BrokerMetrics(
        beans=tuple(map(_exporter_form, beans)), text="\n".join(line for line in lines if not line.startswith("mbean "))
    )


def _exporter_form(bean: str) -> str:
    """``kafka.server:type=A,name=B`` and an attribute as ``kafka.server<type=A, name=B><>attribute``."""
    name, _, attribute = bean.partition("\t")
    domain, _, rest = name.partition(":")
    parts: list[str] = [""]
    is_quoted = is_escaped = False
    for character in rest:
        is_quoted ^= character == '"' and not is_escaped
        is_escaped = character == "\\" and not is_escaped
        if character == "," and not is_quoted:
            parts.append("")
        else:
            parts[-1] += character
    return f"{domain}<{', '.join(parts)}><>{attribute}"


def _jar() -> Path:
    name, version = _MODULE
    kept = config.cache_folder() / "jmx-exporter" / f"{name}-{version}.jar"
    if kept.is_file() and sha256_of(kept) == _SHA256:
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        try:
            retrieve(
                [dependency(_ORGANISATION, name, version)],
                Path(folder, "jars"),
                java=find_java(),
                folder=Path(folder, "ivy"),
            )
        except RetryableError as error:
            pytest.skip(f"the JMX exporter cannot be fetched here: {error.message}")
        (fetched,) = Path(folder, "jars").glob("*/*.jar")
        assert sha256_of(fetched) == _SHA256
        os.replace(fetched, kept)
    return kept
