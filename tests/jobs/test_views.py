"""The tables by SQL: views of a user's session, the questions of the page in three engines, the notebooks."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Final

import duckdb
import duckdb_ext
import polars
import pyarrow as pa
import pytest
from change.scenes import a_journal, attempt
from drivers.command_line import run
from jobs.test_statuses import Clock
from jobs.world import BEGAN_AT, batch, key_of, snapshot, update
from pyspark.sql import SparkSession
from samples.dashboard_tables import HOSTILE

from acktrail.change.audit.audit_chain import AuditEntry, Event
from acktrail.format.columns.schemas.table_comments import comments_of
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.history.history_reader import HistoryReader
from acktrail.history.record_outcomes import by_share_partition, outcome_counts, outcome_filter
from acktrail.model.offset_changes import RecordPosition
from acktrail.tables.sql.polars_views import polars_context
from acktrail.tables.sql.views import VIEWS, duckdb_script
from acktrail.view.finding_rows import open_findings
from acktrail_jobs.api import reconcile
from acktrail_jobs.views import register_views

pytestmark = pytest.mark.usefixtures("spark")

ROOT: Final = Path(__file__).parents[2]
RUNS: Final = 3
GIVES_UP: Final = HOSTILE[4]
"""A group that asks to drop a table. Of its records one is archived between two runs."""
REJECTED: Final = "Offset rejected by client."
ASKED: Final = pa.table(
    {"group_id": [GIVES_UP], "topic": ["orders"], "partition": [0], "asked_offset": [1], "day": [BEGAN_AT.date()]}
)
"""What the questions ask about."""
OF_STATUS: Final = itemgetter(
    *("group_id", "topic", "partition", "status", "status_since", "reason", "unfinished_records")
)
OF_CHANGE: Final = itemgetter("changed_at", "group_id", "topic", "partition", "before", "after", "reason")
OF_FINDING: Final = attrgetter(
    *("severity", "rule", "subject", "detail", "first_seen_at", "times_seen"),
    *("evidence_state_partition", "evidence_offset"),
)


def questions() -> dict[str, str]:
    """The questions of the document and their queries."""
    text = (ROOT / "docs/how-to/ask-with-sql.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\*\*([^*\n]+\?)\*\*.*?\n\n```sql\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


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
    spark.createDataFrame(ASKED).createOrReplaceTempView("asked")
    return clock


def script_of(clock: Clock) -> str:
    return duckdb_script(clock.config.uri, [name for name in TABLES if clock.tables.exists(name)])


Engine = Callable[[str], pa.Table]
"""Answers a query."""


@pytest.fixture(scope="module")
def engines(clock: Clock, spark: SparkSession) -> Iterator[dict[str, Engine]]:
    """By name. DuckDB runs what the command prints. A package has its extension, so it downloads none."""
    context = polars_context(clock.config)
    context.register("asked", polars.DataFrame(ASKED))
    extensions = Path(duckdb_ext.__path__[0], "extensions")
    with duckdb.connect(config={"extension_directory": str(extensions)}) as connection:
        connection.execute(script_of(clock))
        connection.register("asked", ASKED)
        yield {
            "spark": lambda query: spark.sql(query).toArrow(),
            "duckdb": lambda query: connection.execute(query).fetch_arrow_table(),
            "polars": lambda query: context.execute(query, eager=True).to_arrow(),
        }


def answer(engine: Engine, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in engine(query).to_pylist()]


@pytest.mark.parametrize("name", [pytest.param("spark", marks=pytest.mark.full), "duckdb", "polars"])
def test_each_question_of_the_page_has_the_same_answer_in_each_engine(
    clock: Clock, engines: dict[str, Engine], name: str
) -> None:
    """By what acktrail's own readers say, or what was written above. A group's name is compared, and drops nothing."""
    answers = {question: answer(engines[name], query) for question, query in questions().items()}
    assert answers == expected_answers(clock)
    assert engines[name]("SELECT * FROM queue_statuses").num_rows == len(clock.rows("queue_statuses"))


def test_the_command_prints_the_statements_for_duckdb(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the other tests run."""
    assert run(capsys, "tables", "views", "--tables", clock.config.uri).stdout == script_of(clock)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_has_the_same_rows_in_each_engine(engines: dict[str, Engine], view: str) -> None:
    """And the columns that the page of tables says."""
    found = {name: engine(f"SELECT * FROM {view}") for name, engine in engines.items()}
    for rows in found.values():
        assert rows.column_names == [*comments_of(view).columns]
    spark, duck, polar = (sorted(map(repr, rows.to_pylist())) for rows in found.values())
    assert spark == duck == polar != []


def test_fates_sum_up_to_what_acktrail_says(clock: Clock, engines: dict[str, Engine]) -> None:
    """Archived records by the history and by the statuses, everything by the outcomes of all offsets; a group's lag by
    the statuses."""
    rows = answer(engines["duckdb"], "SELECT group_id, outcome, SUM(records) FROM record_fates GROUP BY ALL")
    found = {(group, outcome): int(records) for group, outcome, records in rows}
    history, statuses = HistoryReader(clock.tables), clock.rows("queue_statuses")
    changes = clock.tables.read("delivery_history", where=outcome_filter())
    for (group, *_), own in by_share_partition(changes):
        known = outcome_counts(own, 0, clock.ends - 1)
        archived = sum(each.records for each in history.archived(group))
        assert found.get((group, "archived"), 0) == archived == known.archived
        assert found.get((group, "acknowledged"), 0) == known.acknowledged
        assert found.get((group, "unknown"), 0) == known.unknown == 0
        assert archived == sum(row["archived_seen"] for row in statuses if row["group_id"] == group)
    lag = answer(engines["duckdb"], "SELECT group_id, unfinished_records, reason FROM group_lag")
    assert sorted(lag) == sorted(
        (row["group_id"], row["unfinished_records"], "not_initialized" if row["group_id"] == "idle" else None)
        for row in statuses
    )


def expected_answers(clock: Clock) -> dict[str, list[tuple[Any, ...]]]:
    """By question."""
    mine, releasing = (GIVES_UP, "orders", 0), ("releasing", "orders", 0)
    history = HistoryReader(clock.tables)
    (record,) = history.instances(*mine, 1)
    before, given_up = (each.since for each in record.history.intervals[-2:] if each.since is not None)
    archived = history.archived(GIVES_UP)
    return {
        "Who is in trouble, since when and why?": [
            OF_STATUS(row)
            for row in sorted(clock.rows("queue_statuses"), key=itemgetter("status_since", "group_id"))
            if row["status"] not in ("ok", "idle", "not_judged")
        ],
        "What became of records?": [
            ("orders", "acknowledged", None, 2 * clock.ends - 1, 0),
            ("orders", "archived", None, len(archived), 0),
        ],
        "How many records were archived on each day, by topic?": [(BEGAN_AT.date(), "orders", len(archived))],
        "Which records were archived on a day, and why?": [
            (*mine, *(at.first_offset, at.last_offset, 5), moment(at.at.timestamp_ms), REJECTED if number < 2 else None)
            for number, at in enumerate(archived)
        ],
        "How far behind is each group?": [
            *(("releasing", 1, 30, 0, 30, 0, None), (GIVES_UP, 1, 27, 0, 27, 0, None), ("stuck", 1, 1, 0, 1, 0, None)),
            *(("healthy", 1, 0, 0, 0, 0, None), ("idle", 1, None, 1, None, 1, "not_initialized")),
        ],
        "How many records were acknowledged, released and archived in each hour?": [
            (row["group_id"], "orders", row["partition"], moment(row["interval_start_ms"]), *counts)
            for row in history.rates(3_600_000).to_pylist()
            if any(counts := [row[name] for name in ("acknowledged", "released", "archived")])
        ],
        "What happened to one record?": [
            (moment(before.timestamp_ms), False, "snapshot", "unknown", "unrecorded", None, *place(before)),
            (moment(given_up.timestamp_ms), True, "update", "unrecorded", "archived", 5, *place(given_up)),
        ],
        "What changed?": [
            OF_CHANGE(row)
            for row in sorted(
                clock.rows("status_changes"), key=lambda row: (-row["changed_at"].timestamp(), row["group_id"])
            )
        ],
        "What does the export lack?": [(3, 70, 79, 10, "pruned", BEGAN_AT)],
        "Which findings does the newest run have, and since when?": [
            OF_FINDING(each) for each in open_findings(clock.tables) if each.evidence_state_partition is not None
        ],
        "Who reset what, who approved it, and how did it end?": [
            (row["plan_id"], row["created_at"], ["g"], "to-earliest", row["created_by"], None, "ann", "done")
            for row in clock.rows("reset_plans")
        ],
        "Which partitions fall behind?": [
            *((*releasing, 20, 0, 20), (*mine, 20, 0, 18), ("healthy", "orders", 0, 20, 20, 0)),
            *(("stuck", "orders", 0, 20, 20, 0), ("idle", "quiet", 0, 0, None, None)),
        ],
        "Which records are delivered again and again?": [(*mine, 5, None, 0, 0), (*releasing, 3, None, 6, 18)],
        "How many dead letters has each group, and why?": [
            (GIVES_UP, "orders", REJECTED, 3, int(BEGAN_AT.timestamp() * 1000)),
            (GIVES_UP, "orders", None, 1, int(BEGAN_AT.timestamp() * 1000)),
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
