"""The tables by SQL: views of a user's session, the questions of the documents, the notebook."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import pytest
from change.scenes import a_journal, attempt
from jobs.test_statuses import Clock
from jobs.world import BEGAN_AT, batch, key_of, snapshot, update
from pyspark.sql import SparkSession
from samples.dashboard_tables import HOSTILE

from acktrail.change.audit.audit_chain import AuditEntry, Event
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.history_reader import HistoryReader
from acktrail.model.offset_changes import RecordPosition
from acktrail.model.share_partition import KEY_COLUMNS
from acktrail.view.finding_rows import open_findings
from acktrail_jobs.api import reconcile
from acktrail_jobs.views import register_views

pytestmark = pytest.mark.usefixtures("spark")

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = 3
GIVES_UP: Final = HOSTILE[4]
"""A group that asks to drop a table. Of its records one is archived between two runs."""
REJECTED: Final = "Offset rejected by client."
ASKED: Final[Mapping[str, Any]] = {
    "day": BEGAN_AT.date(),
    "since": BEGAN_AT,
    "group": GIVES_UP,
    "topic": "orders",
    "partition": 0,
    "offset": 1,
    "times": 2,
}
"""What the questions ask about."""
OF_FINDING: Final = attrgetter(
    *("severity", "rule", "subject", "detail", "first_seen_at", "times_seen"),
    *("evidence_state_partition", "evidence_offset"),
)


def questions() -> dict[str, str]:
    """The questions of the document and their queries."""
    text = (ROOT / "docs/how-to/ask-with-sql.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\*\*([^*\n]+)\*\*[^\n]*\n\n```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def clock(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Clock:
    """Three runs beside a session; a gap, dead letters, and a reset that somebody approved."""
    clock, key = Clock(tmp_path_factory.mktemp("a {root}") / "tables"), key_of(GIVES_UP)
    clock.write(snapshot(key, 0))
    for number in range(RUNS):
        clock.write(update(key, 0, number + 1, (batch(number, number, 4, 5),)))
        clock.work(f"r{number}")
        reconcile(clock.config, f"r{number}", "in-process", with_history=True)
    gap = {"cluster_id": "c1", "state_partition": 3, "gap_first": 70, "gap_last": 79, "gap_reason": "pruned"}
    clock.tables.append("export_ranges", [{**gap, "exported_at": BEGAN_AT}])
    letter = {"group_id": GIVES_UP, "topic": "orders", "partition": 0, "decode_status": "decoded"}
    letter |= {"cluster_id": "c1", "timestamp_ms": int(BEGAN_AT.timestamp() * 1000)}
    letters = [(0, REJECTED), (1, REJECTED), (1, REJECTED), (2, None)]
    clock.tables.append("dead_letter_records", [{**letter, "offset": at, "message": text} for at, text in letters])
    plan, root = attempt(Path(clock.config.uri), 1), Path(clock.config.uri)
    own = {"attempt": 0, "plan_id": plan.plan_id, "plan_hash": plan.plan_hash, "group_id": plan.groups[0].group_id}
    a_journal(root).note([AuditEntry(kind="reset", event=Event.APPROVED, **own)])
    register_views(spark, clock.config)
    return clock


def answer(spark: SparkSession, query: str) -> list[tuple[Any, ...]]:
    """The rows, with the values of ``ASKED`` that the query names."""
    args = {name: value for name, value in ASKED.items() if f":{name}" in query}
    return [tuple(row.values()) for row in spark.sql(query, args=args).toArrow().to_pylist()]


def test_each_question_of_the_document_is_answered(clock: Clock, spark: SparkSession) -> None:
    """By what acktrail's own readers say, or what was written above. A group's name is
    compared, and drops nothing."""
    answers = {question: answer(spark, query) for question, query in questions().items()}
    assert answers == expected_answers(clock)
    assert spark.table("queue_statuses").count() == len(clock.rows("queue_statuses"))


def expected_answers(clock: Clock) -> dict[str, list[tuple[Any, ...]]]:
    """By question."""
    mine, releasing = (GIVES_UP, "orders", 0), ("releasing", "orders", 0)
    history = HistoryReader(clock.tables)
    (record,) = history.instances(*mine, 1)
    before, given_up = (each.since for each in record.history.intervals[-2:] if each.since is not None)
    status = {row["group_id"]: row["status"] for row in clock.rows("queue_statuses")}
    verdicts = Counter(
        (row["verdict"], status[row["group_id"]]) for row in clock.rows("reconciliations", f"r{RUNS - 1}")
    )
    return {
        "What was archived on a day, and why?": [
            (*mine, *(at.first_offset, at.last_offset, 5), moment(at.at.timestamp_ms), [REJECTED] * (number < 2))
            for number, at in enumerate(history.archived(GIVES_UP))
        ],
        "How many records were acknowledged, released and archived in each hour?": [
            (*(row[name] for name in KEY_COLUMNS), moment(row["interval_start_ms"]), *counts)
            for row in history.rates(3_600_000).to_pylist()
            if any(counts := [row[name] for name in ("acknowledged", "released", "archived")])
        ],
        "Who releases again and again?": [(*releasing, 6 * (RUNS - 1), 0, 0, 1)],
        "What became of one record?": [
            (moment(before.timestamp_ms), "snapshot", "unrecorded", None, None, False, *place(before)),
            (moment(given_up.timestamp_ms), "update", "recorded", 4, 5, True, *place(given_up)),
        ],
        "How far behind is each group?": [
            *(("releasing", 1, 30, 0, 30, 0), (GIVES_UP, 1, 27, 0, 27, 0), ("stuck", 1, 1, 0, 1, 0)),
            *(("healthy", 1, 0, 0, 0, 0), ("idle", 1, None, 1, None, 1)),
        ],
        "What does the export lack?": [(3, 70, 79, 10, "pruned", BEGAN_AT)],
        "Which findings are open, and since when?": [
            OF_FINDING(each) for each in open_findings(clock.tables) if each.evidence_state_partition is not None
        ],
        "Which offsets were reset, and who approved it?": [
            (row["plan_id"], row["created_at"], ["g"], "to-earliest", None, None, ["ann"], "done")
            for row in clock.rows("reset_plans")
        ],
        "Which partitions are the slowest?": [
            *((*releasing, 20, 0, 20), (*mine, 20, 0, 18), ("healthy", "orders", 0, 20, 20, 0)),
            *(("stuck", "orders", 0, 20, 20, 0), ("idle", "quiet", 0, 0, None, None)),
        ],
        "How many hours was each queue in each status?": [
            *((*mine, "reject_storm", 0.17), ("healthy", "orders", 0, "ok", 0.17), ("idle", "quiet", 0, "idle", 0.17)),
            *(("stuck", "orders", 0, "not_judged", 0.17), (*releasing, "not_judged", 0.08)),
            *((*releasing, "release_loop", 0.08), ("stuck", "orders", 0, "stuck", 0.0)),
        ],
        "How many dead letters has each group, and why?": [
            (GIVES_UP, "orders", REJECTED, 3, 2, BEGAN_AT),
            (GIVES_UP, "orders", None, 1, 1, BEGAN_AT),
        ],
        "Which records were delivered more than N times?": [(*mine, 0, 2, 5, 4), (*releasing, 0, 5, 3, 0)],
        "What did the newest run see?": [
            (*pair, count, 0) for pair, count in sorted(verdicts.items(), key=lambda item: (-item[1], item[0]))
        ],
    }


def moment(ms: int | None) -> dt.datetime:
    assert ms is not None
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)


def place(at: RecordPosition) -> tuple[int, int]:
    return at.state_partition, at.offset


@pytest.fixture
def notebook(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Runs the cells of a notebook, one after the other, on the tables of `clock`; what its names are then."""
    monkeypatch.setenv("ACKTRAIL_TABLES", clock.config.uri)

    def run(name: str) -> dict[str, Any]:
        cells = json.loads((ROOT / "examples" / name).read_text(encoding="utf-8"))["cells"]
        known: dict[str, Any] = {}
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), known)
        return known

    return run


def test_the_notebook_of_questions_runs(
    notebook: Callable[[str], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each query shows something."""
    known = notebook("questions.ipynb")
    assert capsys.readouterr().out.count("poison_records_archived") == 1
    assert [row["delivery_count"] for row in known["often"].collect()] == [5]


def test_the_notebook_of_the_pipeline_runs(notebook: Callable[[str], dict[str, Any]], clock: Clock) -> None:
    """Its frames are what the runs wrote."""
    known = notebook("pipeline.ipynb")
    newest = clock.tables.read("reconciliations").to_pylist()[-1]["run_id"]
    stored = [row["verdict"] for row in clock.tables.rows("reconciliations", {"run_id": newest})]
    assert sum(row["count"] for row in known["counted"].collect()) == len(stored) > 0
    assert known["replayed"].count() > 0
    assert known["history"].count() == clock.tables.read("delivery_history").num_rows


def test_a_view_is_its_table_at_one_version(clock: Clock, spark: SparkSession) -> None:
    """Every table, in chunks too: the same columns and rows, until the views are made again."""
    versions = register_views(spark, clock.config)
    assert {name for name, version in versions.items() if version is not None} == {
        file.parent.name for file in Path(clock.config.uri).glob("*/_delta_log")
    }
    for name, version in versions.items():
        view = spark.table(name)
        assert view.columns == TABLES[name].names
        if version is not None:
            rows = clock.tables.read(name)
            assert sorted(map(repr, view.toArrow().to_pylist())) == sorted(map(repr, rows.to_pylist())), name
    clock.tables.append("topics", [{"cluster_id": "c1", "topic_id": "new"}])
    count = spark.table("topics").count()
    register_views(spark, clock.config)
    assert spark.table("topics").count() == count + 1
