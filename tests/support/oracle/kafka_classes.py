"""Programs of this folder, compiled against a release's own jars and run with them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from drivers.own_process import printed

from acktrail_embedded.kafka.installation import Installation, install

__all__ = ["KafkaProgram", "camel", "compile_java", "compiled"]

_SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaProgram:
    """A compiled program; it reads standard input and writes standard output, both UTF-8."""

    installation: Installation
    classes: Path
    main_class: str

    def run(self, text: str) -> list[str]:
        """The lines it prints for `text`; a failure shows what it said."""
        options = [*_SHORT_LIVED, "-Dorg.apache.logging.log4j.level=OFF"]
        path = f"{self.installation.jars}/*:{self.classes}"
        said = printed(self.installation.java, *options, "-cp", path, self.main_class, input=text, encoding="utf-8")
        return said.splitlines()


def compile_java(class_path: str, folder: Path, *sources: Path) -> None:
    """Compile `sources` into `folder`; skips the test where there is no JDK."""
    if shutil.which("javac") is None:
        pytest.skip("no javac: a JDK is needed to compile a program in Java")
    compiler = ("javac", *(f"-J{option}" for option in _SHORT_LIVED), "-proc:none", "-nowarn")
    printed(*compiler, "-cp", class_path, "-d", folder, *sources)


def compiled(sources: tuple[str, ...], main_class: str, version: str, folder: Path) -> KafkaProgram:
    """The program of `sources` for a Kafka release; skips the test where there is no JDK."""
    installation = install(version)
    compile_java(f"{installation.jars}/*", folder, *(Path(__file__).with_name(source) for source in sources))
    return KafkaProgram(installation=installation, classes=folder, main_class=main_class)


def camel(fields: Any) -> Any:
    """Kafka's JSON begins its names in lower case."""
    if isinstance(fields, dict):
        return {name[0].lower() + name[1:]: camel(value) for name, value in fields.items()}
    return [camel(value) for value in fields] if isinstance(fields, list) else fields
