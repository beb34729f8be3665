"""Kafka's own classes as a peer: a JVM that decodes or replays the same records, a round at a time."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from acktrail_embedded.kafka.installation import Installation, install

MAIN_CLASS = "org.apache.kafka.coordinator.share.KafkaRounds"
SOURCE = Path(__file__).parent / "java" / "KafkaRounds.java"
_HEAP = "-Xmx3g"


class KafkaPeer:
    """A warm JVM. Each call is one round over all records on its one thread."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def round(self, what: str) -> float:
        """CPU seconds of the thread for one round of ``decode`` or ``replay`` (which decodes too)."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{what}\n")
        stdin.flush()
        return int(stdout.readline().split()[0]) / 1e9


@contextmanager
def kafka_peer(raw: pa.Table) -> Iterator[KafkaPeer]:
    """A peer that has `raw` (``RAW_RECORDS``) in its memory. Raises where there is no javac."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise RuntimeError("no javac: a JDK is needed to compile the program that runs Kafka's own classes")
    installation = install()
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder)
        classpath = f"{installation.jars}/*"
        subprocess.run([compiler, "-nowarn", "-cp", classpath, "-d", folder, str(SOURCE)], check=True)
        records = classes / "records.bin"
        records.write_bytes(_octets(raw))
        with subprocess.Popen(
            _command(installation, classes, records), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                if process.stdout.readline().strip() != "ready":
                    raise RuntimeError("Kafka's classes did not start")
                yield KafkaPeer(process)
            finally:
                process.kill()


def _command(installation: Installation, classes: Path, records: Path) -> list[str]:
    path = f"{classes}:{installation.jars}/*"
    return [str(installation.java), _HEAP, "-cp", path, MAIN_CLASS, str(records)]


def _octets(raw: pa.Table) -> bytes:
    """The file that the Java program reads."""
    rows = zip(*(raw[name].to_pylist() for name in ("partition", "offset", "key", "value")), strict=True)
    pieces = [np.array(raw.num_rows, ">i4").tobytes()]
    for partition, offset, key, value in rows:
        pieces += [partition.to_bytes(4), offset.to_bytes(8), _sized(key), _sized(value)]
    return b"".join(pieces)


def _sized(octets: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if octets is None else len(octets).to_bytes(4) + octets
