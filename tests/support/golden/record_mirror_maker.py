"""Writes ``mirror_maker/records.json``: what MirrorMaker 2's own classes make of records and offsets.

::

    .venv/bin/python tests/support/golden/record_mirror_maker.py

Needs a JDK; fetches MirrorMaker's jars of Kafka 4.3.1, which are not among those of a broker.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from acktrail_embedded.kafka.installation import dependency, install, retrieve

HERE: Final = Path(__file__).parent / "mirror_maker"
JARS: Final = ("connect-mirror", "connect-mirror-client", "connect-runtime", "connect-api")
SEED: Final = 11
LARGEST: Final = (1 << 63) - 1


def questions() -> dict[str, Any]:
    """Records of every shape, and offsets between, at, below and above syncs that go forward and back."""
    draw = random.Random(SEED)
    syncs = [
        {"topic": topic, "partition": partition, "upstream_offset": up, "downstream_offset": down}
        for topic, partition, up, down in (
            ("orders", 0, 0, 0),
            ("grüße-北", 2_147_483_647, 1, LARGEST),
            ("", 7, LARGEST, 42),
            ("t" * 249, 3, 123_456_789_012, 98_765_432_109),
        )
    ]
    checkpoints = [
        {"group_id": group, **syncs[index], "metadata": metadata}
        for index, (group, metadata) in enumerate((("billing", ""), ("é", "meta ☂"), ("", "x" * 300), ("g" * 99, "-")))
    ]
    return {"offset_syncs": syncs, "checkpoints": checkpoints, "translations": [_translation(draw) for _ in range(40)]}


def _translation(draw: random.Random) -> dict[str, Any]:
    syncs: list[tuple[int, int]] = []
    up = down = draw.randrange(3)
    for _ in range(draw.randrange(1, 12)):
        syncs.append((up, down))
        step = draw.randrange(1, 9)
        up, down = up + step, down + draw.randrange(1, step + 1)
        if draw.random() < 0.06:  # the mirror began again: records are written a second time
            up = draw.randrange(up)
    return {"syncs": syncs, "offsets": list(range(max(pair[0] for pair in syncs) + 4))}


def main() -> None:
    installation = install("4.3.1")
    with tempfile.TemporaryDirectory() as folder:
        jars, classes = Path(folder, "jars"), Path(folder, "classes")
        wanted = [dependency("org.apache.kafka", name, "4.3.1") for name in JARS]
        retrieve(wanted, jars, java=installation.java, folder=Path(folder, "ivy"))
        path = f"{classes}:{jars}/org.apache.kafka/*:{installation.jars}/*"
        source = str(HERE / "MirrorRecords.java")
        subprocess.run(["javac", "-nowarn", "-cp", path, "-d", str(classes), source], check=True)
        command = [str(installation.java), "-Dorg.apache.logging.log4j.level=OFF", "-cp", path]
        command.append("org.apache.kafka.connect.mirror.MirrorRecords")
        done = subprocess.run(command, input=json.dumps(questions()).encode(), stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    parts = [f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in found.items()]
    (HERE / "records.json").write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
