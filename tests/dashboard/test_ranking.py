"""Who is in trouble: the worst first, nobody left out, counts that add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.model.queue_status import STATUS_TABLE, QueueStatus
from acktrail_dashboard.html.report import render_html
from acktrail_dashboard.ranking import rank, ranked_groups
from acktrail_dashboard.rows.run_tables import RunTables
from acktrail_dashboard.status_wording import status_rank
from acktrail_dashboard.summary import summarize
from acktrail_dashboard.terminal import render_text
from acktrail_dashboard.trouble_wording import trouble

RUN = "run-1"
SEEN = datetime(2026, 11, 21, 4, 46, tzinfo=UTC)
STATUS = st.sampled_from([*QueueStatus, None, "of_a_later_release"])
FOUND = st.dictionaries(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)),
    st.tuples(STATUS, st.sampled_from(["match", "live_ahead", "unknown"]), st.none() | st.integers(0, 9_999)),
    min_size=1,
)
Found = dict[tuple[str, int], tuple[str | None, str, int | None]]


def run_of(found: Found) -> RunTables:
    """A run with a status (None: no row), a verdict and a lag for each group and partition."""
    keys = {
        key: {"run_id": RUN, "group_id": key[0], "topic_id": "t", "topic": "t", "partition": key[1]} for key in found
    }
    verdicts = [{**keys[key], "verdict": of[1], "durable_lag": of[2], "observed_at": SEEN} for key, of in found.items()]
    statuses = [
        {**keys[key], "status": of[0], "status_since": SEEN - timedelta(hours=key[1]), "reason": f"reason of {of[0]}"}
        for key, of in found.items()
        if of[0] is not None
    ]
    return replace(
        RunTables.empty(),
        reconciliations=_table("reconciliations", verdicts),
        queue_statuses=_table("queue_statuses", statuses),
    )


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{c: row.get(c) for c in TABLES[name].names} for row in rows], schema=TABLES[name])


@given(FOUND, st.integers(0, 12))
@settings(max_examples=80, deadline=None)
def test_every_group_is_there_and_what_is_left_off_adds_up(found: Found, most: int) -> None:
    """Shown share partitions and the sums of those left off are the group's own totals; none shown is better than one
    left off; groups and their share partitions stand the worst first."""
    summary = summarize(run_of(found), RUN)
    groups = ranked_groups(summary, most)
    assert Counter(each.totals.group_id for each in groups) == Counter({group: 1 for group, _ in found})
    shown = [row for each in groups for row in each.shown]
    assert len(shown) == min(most, len(found))
    for each in groups:
        rest = each.left_off
        kept = Counter(row.status for row in each.shown if row.status)
        assert Counter(dict(each.totals.statuses)) == kept + Counter(dict(rest.statuses) if rest else {})
        assert each.totals.share_partitions == len(each.shown) + (rest.share_partitions if rest else 0)
        known = sum(row.lag.value or 0 for row in each.shown)
        assert each.totals.lag_records == known + (rest.lag_records if rest else 0)
        assert each.totals.lag_unknown == sum(row.lag.value is None for row in each.shown) + (
            rest.lag_unknown if rest else 0
        )
    left_off = [row for row in summary.partitions if row not in shown]
    assert max(map(rank, shown), default=(0,)) <= min(map(rank, left_off), default=(99,))
    worst = [min(rank(row) for row in summary.partitions if row.group_id == each.totals.group_id) for each in groups]
    assert worst == sorted(worst)
    ranks = [status_rank(each.totals.status) for each in groups if each.totals.status]
    own = [min(status_rank(word) for word, _ in each.totals.statuses) for each in groups if each.totals.status]
    assert ranks == own, "the status of a group is the worst of its share partitions, whatever their verdicts are"
    assert dict(summary.totals.group_statuses) == Counter(each.totals.status for each in groups if each.totals.status)


def test_the_headline_answers_who_is_in_trouble_and_since_when() -> None:
    """Groups that need action are named, the worst first, with the earliest time; others are counted."""
    found: Found = {
        ("calm", 0): ("ok", "match", 0),
        ("slow", 0): ("lagging", "match", 50),
        ("poison", 0): ("stuck", "match", 7),
        ("poison", 3): ("stuck", "match", 7),
        ("poison", 1): ("ok", "match", 0),
        ("late", 1): ("retention_risk", "match", 9),
    }
    summary = summarize(run_of(found), RUN)
    late, poison = "late retention risk since 2026-11-21 03:46:00 UTC", "poison stuck since 2026-11-21 01:46:00 UTC"
    assert trouble(summary) == (
        f"2 of 4 groups need action: {late}; {poison}. Another 1 group to look at.",
        "critical",
    )
    html = render_html(run_of(found), RUN, written_at=SEEN)
    assert "2 of 4 groups need action" in html.split("</h1>")[0]
    assert "6 of 6 share partitions match the cluster" in html
    assert html.index("reason of stuck") < html.index("reason of lagging")
    assert "2 of 4 groups need action" in render_text(summary)


def test_without_trouble_or_without_statuses_the_headline_says_that() -> None:
    """All is well; nothing needs action but something is to look at; no statuses: the trail's own sentence."""
    assert trouble(summarize(run_of({("g", 0): ("idle", "match", 0)}), RUN)) == ("No group is in trouble.", "ok")
    looking = trouble(summarize(run_of({("g", 0): ("state_unknown", "match", 0)}), RUN))
    since = "since 2026-11-21 04:46:00 UTC"
    assert looking == (f"No group needs action; 1 group to look at: g state unknown {since}.", "warning")
    without = trouble(summarize(run_of({("g", 0): (None, "match", 0)}), RUN))
    assert without == ("1 of 1 share partition match the cluster.", "ok")


def test_critical_findings_are_in_the_headline_also_where_all_groups_look_well() -> None:
    """Numbers that contradict each other are no good news: the headline begins with the number of critical findings."""
    calm = run_of({("g", 0): ("ok", "match", 0)})
    broken = [{"run_id": RUN, "rule": severity, "severity": severity} for severity in ("critical", "error")]
    summary = summarize(replace(calm, findings=_table("findings", broken)), RUN)
    assert trouble(summary) == ("1 critical finding. By status alone: no group is in trouble.", "critical")


def test_what_stopped_the_run_stands_first_in_its_headline() -> None:
    """A critical rule that is broken stops a run, and so does one that raised; no other result does."""
    results = [
        {"run_id": RUN, "evaluated_at": SEEN, "suite": "s", "expectation": f"{severity}_{success}_{error}",
         "severity": severity, "success": success, "error": error, "element_count": 3}
        for severity, success, error in (
            ("critical", False, None), ("critical", False, "it raised"), ("critical", None, None),
            ("critical", True, None), ("warning", False, None), ("info", False, None),
        )
    ]  # fmt: skip
    stopped = replace(run_of({("g", 0): ("ok", "match", 0)}), quality_results=_table("quality_results", results))
    assert trouble(summarize(stopped, RUN)) == (
        "The checks stopped this run: 2 critical rules broken. By status alone: no group is in trouble.",
        "critical",
    )


def test_statuses_of_another_run_are_not_shown() -> None:
    """The table has the newest run's statuses alone: an older run has none, and says so."""
    own, other = run_of({("g", 0): (None, "match", 0)}), run_of({("g", 0): ("stuck", "match", 0)})
    column = pa.array(["later"], pa.string())
    later = other.queue_statuses.set_column(other.queue_statuses.schema.get_field_index("run_id"), "run_id", column)
    summary = summarize(replace(own, queue_statuses=later), RUN)
    assert [row.status for row in summary.partitions] == [None]
    assert summary.totals.statuses == ()
    assert "not known" in render_text(summary)


def test_every_status_has_a_tone_and_a_meaning_on_the_page() -> None:
    """No status of the model is missing where the page says how to read it."""
    html = render_html(run_of({("g", 0): ("ok", "match", 0)}), RUN, written_at=SEEN)
    for status, meaning in STATUS_TABLE.items():
        assert status.value.replace("_", " ") in html
        assert meaning.meaning in html
