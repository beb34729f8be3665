"""Every benchmark runs to its end, with sizes so small that its figures mean nothing."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

ROOT: Final = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

import run  # noqa: E402  # a program of the folder `benchmarks`
from day import Load  # noqa: E402  # as above
from raw_log import LogShape  # noqa: E402  # as above
from table import lines  # noqa: E402  # as above

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SMALL_LOG: Final = LogShape(records=2_000, share_partitions=20)
SMALL: Final[dict[str, dict[str, Any]]] = {
    "decode": {"records": 2_000, "count": 1, "warm_up": 0, "streamed": 2_000},
    "replay": {"records": 2_000, "share_partitions": 20, "count": 1, "warm_up": 0},
    "export": {"count": 2_000, "rounds": 1},
    "readers": {"count": 2_000, "rounds": 1, "rates": (20,), "partitions": 2, "seconds": 3.0},
    "steady": {"loads": ((20, (100, 500)),), "partitions": 2, "seconds": 3.0},
    "soak": {"commits": 24, "records": 60},
    "history": {"records": 2_000, "share_partitions": (20,), "by_the_model": 200},
    "fate": {"changes": 2_500, "share_partitions": 50, "changes_of_a_step": 1_000, "rounds": 1},
    "reset": {"groups": 2, "partitions": 2, "rounds": 1},
    "describe": {"group": "g-000", "rounds": 1, "partitions": 2, "some": 3, "many": 5},
    "maintenance": {"days": 4, "minutes": 60, "state_partitions": 2},
    "statuses": {"share_partitions": 50, "groups": 2, "partitions": 2, "days": 3},
    "pages": {"groups": 8, "partitions": 2, "runs": 4, "fine_days": 0.1, "hourly_days": 0, "rounds": 1},
    "day": {
        "loads": (Load(groups=1, partitions=2, updates_a_minute=60),),
        "minutes": 1,
        "reconciliations": 1,
        "airflow_s": None,
    },
    "reconcile": {"shapes": {"small": SMALL_LOG}, "ways": ("in-process", "connect"), "rounds": 1},
    "validation": {"shapes": (SMALL_LOG,)},
    "spark": {"count": 1, "shapes": {"2 M": SMALL_LOG}},
}
"""In this order: `reset` makes the group that `describe` asks for."""

LONG: Final = (
    "replay",
    "export",
    "readers",
    "describe",
    "reset",
    "pages",
    "validation",
    "steady",
    "soak",
    "maintenance",
    "day",
    "reconcile",
    "spark",
)
"""Those that take longest even at such sizes."""
MARKS: Final = {
    name: (pytest.mark.full, *([pytest.mark.spark] if name in {"reconcile", "spark"} else [])) for name in LONG
}

BESIDE_KAFKAS_CLASSES: Final = ("decode", "replay")


@pytest.fixture(scope="module")
def fresh_broker() -> Iterator[EmbeddedBroker]:
    """A broker without a state topic: one of the benchmarks makes it."""
    with EmbeddedBroker() as broker:
        yield broker


def test_none_is_left_out() -> None:
    """What `make bench` runs is what is run here; what needs a branch is run beside it."""
    assert SMALL.keys() == run.BENCHMARKS.keys() - run.OF_BRANCHES
    assert SMALL.keys() >= run.ON_A_BROKER


def test_the_page_says_what_each_measures() -> None:
    """The first table of docs/explanation/benchmarks.md defines every benchmark, in three cells without a measured
    figure."""
    page = (ROOT / "docs/explanation/benchmarks.md").read_text(encoding="utf-8")
    definitions = [
        line.strip("|").split("|") for line in page.split("\n|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    ]

    assert sorted(cells[0].strip(" `") for cells in definitions) == sorted(run.BENCHMARKS.keys() | run.OF_BRANCHES)
    for name, *cells in definitions:
        assert len(cells) == 2, name
        assert not re.search(r"\d s (wall|CPU)\b|\dx (faster|less)", "".join(cells)), name


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SMALL])
def test_a_benchmark_fills_its_part_of_the_table(name: str, request: pytest.FixtureRequest) -> None:
    """It ends, its answers are right where it compares them, and every row is a line with figures."""
    if name in BESIDE_KAFKAS_CLASSES and shutil.which("javac") is None:
        pytest.skip("no javac: a JDK is needed to compile the program that runs Kafka's own classes")
    broker = [request.getfixturevalue("fresh_broker")] if name in run.ON_A_BROKER else []
    fills_its_part(name, *broker, **SMALL[name])


def fills_its_part(name: str, *broker: EmbeddedBroker, **sizes: Any) -> None:
    """Run one benchmark and read its lines."""
    first, *rest = lines(name, run.BENCHMARKS[name](*broker, **sizes))
    assert first.startswith(f"| {name} ")
    for line in (first, *rest):
        _, _, what, ours, *_ = line.split("|")
        assert any(letter.isdigit() for letter in ours), (what, ours)
