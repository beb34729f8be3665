"""A real YARN with one node, for ``spark-submit``: Hadoop's own classes, fetched once as Kafka's jars are."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark
from servers.fetched_jars import fetched_jars

from acktrail import config
from acktrail.java import find_java

__all__ = ["SPARK_JARS", "running_yarn"]

SPARK_JARS: Final = Path(pyspark.__file__).parent / "jars"
_PROGRAM: Final = Path(__file__).with_name("YarnCluster.java")
_JARS: Final = {
    ("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"): (
        "06772d24529e59939915979b3edba204d367750ef7dc5120411f35221dd4818c"
    ),
    ("org.bouncycastle", "bcpkix-jdk18on", "1.82"): "bdc723e20834832ac6af136cb5b5ff05e43b71d4fa151cc6510d9212ee086e63",
    ("org.bouncycastle", "bcprov-jdk18on", "1.82"): "14cde2fdfaa8890480a8e5b67aceef0c90f96682c1e23c133bafdc9e0b3255ce",
    ("org.bouncycastle", "bcutil-jdk18on", "1.82"): "4420691958ad1c0ba275a6d6d8a6317adbdbdc9277055b6a72aa89c88cda8c7d",
    ("org.junit.jupiter", "junit-jupiter-api", "5.12.2"): (
        "0b9ca728e4bcd9adc57f29deb9556ff9ed5e08b4e8843b875aba4e4e3e04f092"
    ),
    ("org.junit.platform", "junit-platform-commons", "1.12.2"): (
        "e683a01e85dfabea520c056ac6015a6162756e602ec653c0da85e233f0afbc18"
    ),
    ("org.opentest4j", "opentest4j", "1.3.0"): "48e2df636cab6563ced64dcdff8abb2355627cb236ef0bf37598682ddf742f1b",
}
"""Of the Hadoop whose client PySpark ships, and what its small cluster loads. By coordinates, the sha256."""
_START_S: Final = 180.0


@contextmanager
def running_yarn(folder: Path) -> Iterator[Path]:
    """The folder with ``yarn-site.xml``, for HADOOP_CONF_DIR. What containers write is in `folder`, too. Skips the test
    where the jars cannot be fetched."""
    jars, site = fetched_jars("yarn", _JARS), folder / "conf"
    site.mkdir()
    command = [
        *(find_java(config.java_home()), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
        *("-cp", f"{jars}/*:{SPARK_JARS}/*", _PROGRAM, site),
    ]
    with (folder / "yarn.log").open("w") as log, subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log
    ) as process:  # fmt: skip
        try:
            deadline = time.monotonic() + _START_S
            while not (site / "yarn-site.xml").exists():
                assert process.poll() is None, (folder / "yarn.log").read_text()[-3000:]
                assert time.monotonic() < deadline, "YARN does not start"
                time.sleep(0.2)
            yield site
        finally:
            process.communicate()
