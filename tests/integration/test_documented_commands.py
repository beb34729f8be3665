"""The command lines of the documents, run as they stand, in their order, against a fresh broker.

What a document shows as printed is what they print there, apart from times and names of runs.
``ACKTRAIL_WRITE_DOCUMENTS=1 pytest -k 4.4.0 FILE`` writes it into the document.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import re
import socket
import sys
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType
from drivers.own_process import finished
from samples.dump_lines import dump_line
from state_topics.filled_topic import read_all

from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = {
    "docs/how-to/ask-with-sql.md": "a test of the views runs its queries",
    "docs/how-to/dashboard.md": "its commands serve until Ctrl-C",
    "docs/how-to/export-with-spark.md": "its commands export until Ctrl-C",
    "docs/how-to/migrate.md": "a test with two clusters runs it",
    "docs/how-to/run-on-spark.md": "its commands need a server of Spark",
    "docs/how-to/upgrade.md": "its commands change the brokers",
    "docs/how-to/write-your-own-dag.md": "its commands need Airflow",
    "docs/reference/rights.md": "its commands need a broker with an authorizer",
}
"""Pages with console blocks that are not run here, and why."""


FIRST: Final = "docs/tutorials/first-cluster.md"
SHOWN: Final = (FIRST, "README.md", "docs/tutorials/poison-record.md")
"""Documents whose output blocks are compared: after the commands of all documents, some print more."""


def _pages() -> Iterator[str]:
    """The first tutorial and the README, then every page for operators with a console block: reference first,
    tutorials last."""
    yield from (FIRST, "README.md")
    for folder in ("reference", "how-to", "tutorials"):
        for page in sorted((ROOT / "docs" / folder).glob("*.md")):
            name = str(page.relative_to(ROOT))
            if name != FIRST and name not in ELSEWHERE and "\n```console\n" in page.read_text("utf-8"):
                yield name


DOCUMENTS: Final = tuple(_pages())

OF_ACKTRAIL: Final = ("acktrail ", "export ACKTRAIL_", "make sync && source ")
"""How a line begins that is run. A block with any other line is marked ``<!-- not run: REASON -->``."""

NOT_RUN: Final = {
    ("README.md", "make demo    # a real broker, share groups at work, the real DAGs, a summary and one HTML report"): (
        "starts servers and the tests themselves"
    ),
    ("docs/how-to/install.md", "make wheel"): "installs from a package index",
    (FIRST, "acktrail dashboard serve"): "serves until Ctrl-C",
    (
        "docs/tutorials/poison-record.md",
        "kafka-console-consumer.sh --bootstrap-server broker-1:9092 --topic orders --partition 0 --offset 7",
    ): "a tool of Kafka",
    (
        "docs/how-to/redrive.md",
        "acktrail run export && acktrail run history          # which records are archived now",
    ): "needs archived records",
    ("docs/how-to/look-into-a-record.md", "export ACKTRAIL_PAYLOADS=allowed"): "needs a record of a topic",
}
"""The first line of each block that is marked so in its document, and the reason that stands there."""


@dataclass(frozen=True)
class Block:
    """A fenced console block: its lines without the prompt, and why it is not run (None: it is). `printed`: the block
    below it, all that its lines print on stdout; None: the document does not show it."""

    document: str
    lines: tuple[str, ...]
    not_run: str | None
    printed: str | None


@dataclass(frozen=True)
class Ran:
    """A line of a document and how it ended."""

    document: str
    line: str
    code: int
    stdout: str
    stderr: str


def blocks(document: str) -> Iterator[Block]:
    """The console blocks of a document, in their order."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for found in _CONSOLE.finditer(text):
        lines = tuple(line.removeprefix("$ ") for line in found[2].splitlines() if line.startswith("$ "))
        yield Block(document=document, lines=lines, not_run=found[1], printed=found[3])


_CONSOLE: Final = re.compile(
    r"(?:^<!-- not run: ([^\n]+) -->\n)?^```console\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)
BLOCKS: Final = tuple(block for document in DOCUMENTS for block in blocks(document))


@contextmanager
def prepared_broker(version: str, folder: Path) -> Iterator[EmbeddedBroker]:
    """A broker with the group and topic of the documents, and the files that they name in `folder`."""
    with EmbeddedBroker(version) as broker:
        world = World.at(broker.config(), folder)
        world.make_topic("orders", 1, 20)
        world.settle("billing", "orders", 20, _decide)
        records = sorted(read_all(broker), key=lambda record: (record.state_partition, record.offset))
        (folder / "profiles.toml").write_text(_profiles(folder, broker.bootstrap_servers), encoding="utf-8")
        (folder / "dump.jsonl.gz").write_bytes(gzip.compress("\n".join(map(dump_line, records)).encode()))
        yield broker


def _decide(part: tuple[int, int]) -> AcknowledgeType:
    """From one record on its consumers take them all for damage: more are given up than done."""
    return AcknowledgeType.REJECT if part[1] >= 7 else AcknowledgeType.ACCEPT


def placeholders(folder: Path, bootstrap_servers: str) -> dict[str, str]:
    """What the documents write for something that differs from one reader to the next, and what it is here."""
    plan = folder / "plan.json"
    return {
        "make sync": "true",  # the tests run in what it makes
        ".venv/bin/activate": str(Path(sys.prefix) / "bin/activate"),
        "broker-1:9092": bootstrap_servers,
        "/data/acktrail": str(folder / "tables"),
        "/home/ada/acktrail-tables": str(folder / "first-tables"),
        "/data/copy": str(folder / "copy"),
        "/data/clusters": str(folder / "clusters"),
        "${env:USER}": "user",  # not set everywhere
        "20260131T090000Z-1a2b3c4d": json.loads(plan.read_text())["plan_id"] if plan.exists() else "no-plan-yet",
    }
    # Not replaced: group `billing`, topic `orders`, plan.json, report.html, dump.jsonl.gz, past times.


def _profiles(folder: Path, bootstrap_servers: str) -> str:
    """The file of profiles that a document shows."""
    text = (ROOT / "docs/how-to/several-clusters.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```toml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for placeholder, value in placeholders(folder, bootstrap_servers).items():
        shown = shown.replace(placeholder, value)
    return shown


def run_of(names: Container[str]) -> list[Block]:
    """The blocks of the documents `names` that are run, in their order."""
    return [block for block in BLOCKS if block.document in names and not block.not_run]


def run_lines(folder: Path, bootstrap_servers: str, run: list[Block]) -> Iterator[Ran]:
    """Run the lines of the blocks in one environment, up to the first that fails."""
    environment = folder / "environment"
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if not Path(each, "acktrail").exists())
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ACKTRAIL_", "VIRTUAL_ENV"))}
    environment.touch()
    for block in run:
        for line in block.lines:
            replaced = line
            for placeholder, value in placeholders(folder, bootstrap_servers).items():
                replaced = replaced.replace(placeholder, value)
            script = f"source {environment}\n{replaced}\ncode=$?\nexport -p > {environment}\nexit $code\n"
            done = finished("bash", "-c", script, cwd=folder, env={**inherited, "PATH": path}, timeout=None)
            yield Ran(block.document, line, done.returncode, done.stdout, done.stderr)
            if done.returncode:
                return


_VARYING: Final = {
    r"\d{4}-\d\d-\d\d(?:T[\d:.]+Z| [\d:]+ UTC)": "TIME",
    r"\d+ (?:s|min) ago": "AGO",
    r"\d{8}T\d{6}Z-[0-9a-f]{8}": "PLAN",
    r"process \d+": "PROCESS",
    r"(topic \w+) \([\w-]{22},": r"\1 (ID,",
    r"(cluster +(?:ok +)?)[\w-]{22}": r"\1ID",
    r"\blocal-\d+": "APPLICATION",
    r"/\S+/bin/java": "JAVA",
    r"\b\d+:\d+\b": "STATE RECORD",
    r" {2,}": "  ",
}
"""What differs from one run to the next; widths of columns follow it."""


def comparable(printed: str) -> str:
    """Without what differs from one run to the next."""
    for pattern, name in _VARYING.items():
        printed = re.sub(pattern, name, printed)
    return printed


def shown(printed: list[str], folder: Path, bootstrap_servers: str) -> str:
    """What the lines of a block printed, as a document shows it: with its own names in place of this machine's."""
    text = "\n".join(printed).rstrip("\n") + "\n"
    names = {found: placeholder for placeholder, found in placeholders(folder, bootstrap_servers).items()}
    names |= {getpass.getuser(): "ada", socket.gethostname(): "ops-1"}
    for found, placeholder in names.items():
        text = re.sub(rf"(?<![\w/-]){re.escape(found)}(?![\w/-])", placeholder, text)
    return re.sub(r"/\S+/bin/java", "/usr/bin/java", text)


def outputs(
    documents: tuple[str, ...], ran: list[Ran], folder: Path, bootstrap_servers: str
) -> Iterator[tuple[Block, str]]:
    """The blocks that show what they print, and what that is."""
    lines = iter(ran)
    for block in run_of(documents):
        printed = [next(lines).stdout for _ in block.lines]
        if block.printed is not None:
            yield block, shown(list(filter(None, printed)), folder, bootstrap_servers)


@pytest.mark.parametrize(
    ("version", "documents"),
    [
        pytest.param("4.3.1", DOCUMENTS, marks=pytest.mark.full, id="4.3.1"),
        pytest.param("4.4.0", SHOWN, id="4.4.0"),
    ],
)
def test_every_documented_command_works(version: str, documents: tuple[str, ...], tmp_path: Path) -> None:
    """Each ends with exit code 0 where the ones above it were run before, and there is no line that was not reached.
    What the README's block exports is reconciled, validated and reported: the group's one share partition. What a
    document shows as printed is printed."""
    with prepared_broker(version, tmp_path) as broker:
        ran = list(run_lines(tmp_path, broker.bootstrap_servers, run_of(documents)))
        address = broker.bootstrap_servers
    last = ran[-1]
    assert last.code == 0, f"{last.document}: $ {last.line}\n{last.stdout}\n{last.stderr}"
    assert [each.line for each in ran] == [line for block in run_of(documents) for line in block.lines]
    (reconciled,) = (each.stdout for each in ran if each.line.startswith("acktrail run reconcile && acktrail run val"))
    assert re.search(r"verdict +match +1\b", reconciled), reconciled
    if documents == SHOWN:
        for block, printed in outputs(documents, ran, tmp_path, address):
            if os.environ.get("ACKTRAIL_WRITE_DOCUMENTS"):
                _write(block, printed)
            else:
                assert comparable(block.printed or "") == comparable(printed)


def _write(block: Block, printed: str) -> None:
    """Put what was printed where the document shows it."""
    page = ROOT / block.document
    text = page.read_text("utf-8")
    assert text.count(f"```\n{block.printed}```") == 1
    page.write_text(text.replace(f"```\n{block.printed}```", f"```\n{printed}```"), "utf-8")


def test_only_marked_blocks_are_left_out() -> None:
    """Every block is run, or marked in its document with the reason that stands here; nothing else is left out."""
    marked = {(block.document, block.lines[0]): block.not_run for block in BLOCKS if block.not_run}
    assert marked == NOT_RUN
    assert {block.document for block in BLOCKS} == set(DOCUMENTS)
    others = [line for block in BLOCKS if not block.not_run for line in block.lines if not line.startswith(OF_ACKTRAIL)]
    assert others == []
