"""What pages answer over HTTP: findings, checks, rules, changes and the export; what they show of tables that are not
there, empty, damaged, of a later release, or changing; plans and their lives from tables that real changes left."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from change.scenes import CLUSTER, attempt, unlocked
from dashboard.conftest import Site
from jobs.world import World, batch, key_of, snapshot, update
from samples.dashboard_tables import HOSTILE, NOW, Sizes, topic_id_of, write_dashboard_tables, write_evidence_tables
from samples.history_tables import build
from servers.web_server import web_server

from acktrail.change import api
from acktrail.change.audit.plan_life import ChangeStatus
from acktrail.change.plan.change_plan import with_hash
from acktrail.change.plan.notices import Notice, Severity
from acktrail.config import TablesConfig
from acktrail.format.columns.schemas.table_schemas import TABLES
from acktrail.group_changes.group_change_plan import ConfigStep, GroupChange, GroupChangePlan
from acktrail.model.rules.catalogue import rule_catalogue
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.trend_charts import charts_of
from acktrail_dashboard.web.application import create_app
from acktrail_dashboard.web.pages.changes import STANDING_TONES, plan_story

RULE = "missing_state"
CHECKED_RUNS = 20
SMALL = Sizes(groups=8, partitions_a_group=2, runs=4, fine_days=0.1, hourly_days=0)
STUCK = urlencode({"group": "fraud-scoring", "topic": topic_id_of("payments"), "partition": 0})
PAGES = ("", "groups", "share-partitions", "group?id=fraud-scoring", f"share-partition?{STUCK}&offset=5")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "tables"


@pytest.fixture
def own(root: Path) -> Iterator[Site]:
    """The tables of this test alone: none yet."""
    config = TablesConfig(uri=str(root))
    with web_server(create_app(config, clock=lambda: NOW)) as url:
        yield Site(url, Tables(config))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few groups."""
    root = tmp_path_factory.mktemp("written") / "tables"
    write_dashboard_tables(root, SMALL)
    return root


@pytest.fixture
def small(own: Site, written: Path, root: Path) -> Site:
    """The same for one test."""
    shutil.copytree(written, root)
    return own


def test_a_finding_leads_to_the_bytes_that_show_it(site: Site) -> None:
    """From the list to the finding, its rule and the state record: what it says and its bytes. The export lists a
    record in quarantine, whose page has the reason and the bytes as they were."""
    status, text = site.page(f"findings?rule={RULE}")
    assert status == 200
    assert f"finding?rule={RULE}&subject=" in text
    assert f"rule?id={RULE}" in text
    status, text = site.page(site.finding())
    assert status == 200
    assert "record?state-partition=17&offset=90210" in text
    assert "acknowledged" in text
    assert "00 00 00 0f 62 69 6c 6c 69 6e 67" in text
    assert "....billing-work" in text
    assert "record?state-partition=3&offset=41" in site.page("export")[1]
    status, text = site.page("record?state-partition=3&offset=41")
    assert status == 200
    assert "malformed value: string at byte 4 is too long" in text
    assert HOSTILE[0].encode()[:16].hex(" ") in text


def test_no_topic_id_stands_for_a_name(site: Site) -> None:
    """No page shows, or reads out, the id of a topic whose name is known, but as the code that a label calls an id."""
    ids = [row["topic_id"] for row in site.tables.rows("topics")]
    paths = ("", "groups", "share-partitions", "findings", "group?id=fraud-scoring", site.finding(),
             "record?state-partition=17&offset=90210",
             "share-partition?" + urlencode({"group": "fraud-scoring", "topic": topic_id_of("payments"),
                                             "partition": 0}))  # fmt: skip
    for path in paths:
        status, text = site.page(path)
        assert status == 200, path
        hidden = r"<code>[^<]*(<wbr>[^<]*)*</code>|<head>.*?</head>|(href|value|data-[a-z]+)=\"[^\"]*\""
        shown = re.sub(hidden, "", text, flags=re.DOTALL)
        assert [topic_id for topic_id in ids if topic_id in shown.replace("<wbr>", "")] == [], path
        assert path not in {"", "findings"} or "fraud-scoring" in shown


def test_filters_are_in_the_address(site: Site) -> None:
    """Severity, rule, group, first sighting and standing; what is no filter is refused with the right form, and is
    never an error of the program; what is not there is not found."""
    critical = site.page("findings?severity=critical&shown=all")[1]
    assert "poison_records_archived</" not in critical.split("<tbody")[1]
    assert site.page("findings?group=nobody")[1].count("No finding is so") == 1
    assert "No finding is so" in site.page("findings?since=1h")[1]
    assert "No finding is so" not in site.page("findings?since=2026-11-01T00:00:00Z")[1]
    for wrong in (
        *(
            "?range=2y",
            "?from=yesterday",
            "?from=2026-11-23T00:00&to=2026-11-22T00:00",
            "?from=0001-01-01&to=9999-12-31",
        ),
        *("groups?page=-1", "groups?page=9e9", "groups?status=fine", "groups?page=" + "9" * 400),
        *("findings?severity=worst", "findings?since=yesterday", "findings?since=999999999999999999"),
        *("findings?shown=some", "findings?page=x", "record?state-partition=-1&offset=x", "record?state-partition=1"),
        *("change", "check?run=a", "finding?rule=x", "rule"),
    ):
        status, text = site.page(wrong)
        assert (status, "problem-title" in text, "defect" in text) == (400, True, False), wrong
    assert "does not name the suite and expectation" in site.page("check?run=a")[1]
    for unknown in (
        *("change?plan=nothing", "rule?id=nothing"),
        *("finding?rule=a&subject=b", "check?run=a&suite=b&expectation=c"),
    ):
        assert site.page(unknown)[0] == 404, unknown
    assert "no record at this offset" in site.page("record?state-partition=17&offset=9223372036854775807")[1]


def test_checks_have_their_results_behind_them(site: Site) -> None:
    """Each cell says what it means in a word, and leads to the examples of its run."""
    status, text = site.page("checks?suite=state_records")
    assert status == 200
    assert 'aria-label="fails, 1,204 unexpected"' in text
    assert text.count('<td class="ok">✓</td>') > CHECKED_RUNS
    failing = re.findall(r'<tr class="sums"><th scope="row" colspan="2">fails</th><td[^>]*>(\d+)', text)[0]
    newest = re.findall(r'<td class="[a-z]+">.*?</td>', text)[::CHECKED_RUNS]
    assert int(failing) == sum("fails" in cell for cell in newest) == 1, "counts are of the rules that are shown"
    assert "check?run=run-00037&suite=state_records&expectation=batches_non_overlapping" in text
    assert "check?run=run-00047&suite=" in site.page("rule?id=batches_non_overlapping")[1]
    text = site.page("check?run=run-00037&suite=state_records&expectation=batches_non_overlapping")[1]
    assert "1,204" in text
    assert HOSTILE[0] in text
    text = site.page("check?run=run-00036&suite=export_ranges&expectation=nothing_pruned_before_export")[1]
    assert "no row was compared" in text


def test_every_rule_has_a_page(site: Site) -> None:
    """What a breach means, why it is as severe and what to do, without any network."""
    status, text = site.page("rules")
    assert status == 200
    for rule in rule_catalogue().rules:
        assert f"rule?id={rule.id}" in text
    one = rule_catalogue().rules[0]
    text = site.page(f"rule?id={one.id}")[1]
    for part in (one.title, one.meaning, one.why, one.advice, *one.sources):
        assert re.sub("`(.*?)`", r"<code>\1</code>", part) in text


def test_every_alert_has_its_runbook_at_its_anchor(site: Site) -> None:
    """The page has each section of docs/reference/runbooks.md, rendered: no mark of Markdown is left, and no link leads
    to a document that the dashboard does not have."""
    document = (Path(__file__).parents[2] / "docs/reference/runbooks.md").read_text("utf-8")
    status, text = site.page("runbooks")
    assert status == 200
    for alert in re.findall(r"^## (.+)$", document, re.MULTILINE):
        assert f'<section id="{alert.lower()}"' in text
    content = text.split("<main", 1)[1].split("</main>", 1)[0]
    assert content.count("<strong>Means:</strong>") == document.count("**Means:**") > 20
    assert "<code>acktrail status</code>" in content
    assert not re.search(r"\*\*|\]\(|`|href=\"[^#\"]*\\.md", content)
    assert "reset (docs/how-to/reset-offsets.md)" in content
    assert 'href="#acktrailgaprecorded"' in content


def test_a_plan_has_its_whole_life_on_one_page(own: Site, root: Path) -> None:
    """Notices, share partitions, outcome and each step of the audit. The list says that the audit is consistent, or
    names the row that somebody altered, and stays up; where it cannot be read, that is not known. Every standing has a
    tone."""
    assert set(STANDING_TONES) == set(ChangeStatus)
    own.tables.prepare()
    write_evidence_tables(own.tables)
    status, text = own.page("change?plan=2026000001")
    assert status == 200
    words = ("had finished are delivered again", "In flight, delivery counts dropped", "Verification", "planned")
    for part in (*words, "lease taken", "before call", "after call"):
        assert part in text, part
    assert "consistent in itself; compared with no anchor" in own.page("changes")[1]
    unlocked(root, "reset_audit").update(predicate="sequence = 1", updates={"actor": "'nobody'"})
    status, text = own.page("changes")
    assert status == 200
    assert "the audit is broken at row 1" in text
    assert "are a whole chain" not in text
    for file in (root / "reset_audit").glob("*.parquet"):
        file.unlink()
    text = own.page("changes")[1]
    assert ("badge unknown" in text, "broken" in text, "a whole chain" in text) == (True, False, False)


def test_a_plan_has_on_its_page_what_only_its_kind_says(own: Site) -> None:
    """Of a configuration the old and the new value, each line as it is, and hidden characters shown; and one line for
    notices that say the same."""
    step = ConfigStep(name=HOSTILE[0], before="latest", is_own=False, after="earliest")
    about = {"kind": "alter_configs", "strategy": "s", "created_by": "ann", "cluster": CLUSTER, "created_at_ms": 0}
    notices = tuple(Notice(Severity.WARNING, "r", f"{count} records", "g") for count in (3, 5))
    plan = GroupChangePlan(plan_id="p", parts=(GroupChange(group_id="g", configs=(step,)),), notices=notices, **about)
    api.store_plan(own.tables.config, with_hash(plan))
    text = own.page("change?plan=p")[1]
    assert re.search(r"<pre[^>]*>GROUP +NAME.+\ng +\S.* +latest +default +earliest\n</pre>", text)
    assert "3 to 5 records" in text


def test_pages_of_tables_that_are_not_there_say_so(own: Site) -> None:
    """Nothing was exported yet: every page is there and says what to run, and none claims that all is well; a group is
    not known."""
    own.tables.create("state_records")
    expected = {
        "": "No share group has a status yet.", "groups": "acktrail run reconcile", "share-partitions": "",
        "findings": "Nothing was reconciled yet", "checks": "No run was validated yet",
        "changes": "No plan was made yet", "export": "Nothing was exported yet", "rules": "what must be true",
        "record?state-partition=0&offset=0": "no record at this offset",
    }  # fmt: skip
    for path, words in expected.items():
        assert (own.page(path)[0], words in own.words(path)) == (200, True), path
    for path in PAGES[3:]:
        assert own.page(path)[0] == 404, path
    assert "unknown share group 'fraud-scoring'" in own.words("group?id=fraud-scoring")


def test_tables_that_cannot_be_read_are_named_and_pages_stay(own: Site, root: Path) -> None:
    """Half written, emptied, gone, of a newer version: the page names the table with 503, and shows what it can."""
    own.tables.prepare()
    write_evidence_tables(own.tables)
    own.tables.append("findings", [{"rule": RULE, "severity": "critical", "subject": "s", "cluster_id": "c"}])
    for file in (root / "findings").glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    newest = max((root / "quality_results" / "_delta_log").glob("*.json"))
    protocol = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99, "readerFeatures": ["later"]}}
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(json.dumps(protocol) + "\n")
    for file in (root / "export_ranges").glob("*.parquet"):
        file.unlink()
    shutil.rmtree(root / "state_records" / "_delta_log")
    for path, table in (("findings", "findings"), ("checks", "quality_results"), ("export", "export_ranges")):
        status, text = own.page(path)
        assert status == 503, path
        assert table in text.split("</main>", maxsplit=1)[0], path
        assert "Some tables cannot be read" in text
    assert own.page("record?state-partition=17&offset=90210")[0] in {200, 503}
    assert own.page("changes")[0] == 200


def test_a_stored_plan_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    """Its page says that its hash is another, and shows no notice of it."""
    attempt(tmp_path, 1)
    edit = {"plan": 'replace(plan, \'"reason": "\', \'"reason": "edited \')'}
    unlocked(tmp_path, "reset_plans").update(predicate="plan_id = '2026000001'", updates=edit)
    story = plan_story(TablesConfig(uri=str(tmp_path)), "2026000001")
    assert "hash" in story["plan_problem"]
    assert (story["notices"], story["partitions"]) == ((), [])


@pytest.mark.parametrize("table", ["queue_statuses", "run_totals", "queue_trends", "status_changes", "findings"])
def test_a_damaged_table_is_named_and_the_rest_is_shown(small: Site, root: Path, table: str) -> None:
    """Garbage in place of its files: the status is 503, the page names the table, what comes from other tables is
    there, and nothing shows a traceback."""
    for file in (root / table).rglob("*.parquet"):
        file.write_bytes(b"not parquet at all")
    answers = [small.page(path) for path in PAGES]
    hit = [small.words(path) for path, (status, _) in zip(PAGES, answers, strict=True) if status == 503]
    assert hit
    assert all("Some tables cannot be read" in text and table in text for text in hit)
    assert all("Traceback" not in text for _, text in answers)
    assert {status for status, _ in answers} <= {200, 503}
    if table != "queue_statuses":
        assert "fraud-scoring" in answers[0][1]


def test_the_next_reconciliation_is_shown_at_the_next_visit(small: Site) -> None:
    """What was read is kept until a commit, and no longer. A status that this release does not know is shown, among
    those that need a look."""
    assert "another-group" not in small.words("groups")
    rows = [row | {"group_id": "another-group"} for row in small.tables.rows("queue_statuses")]
    rows[0] |= {"group_id": "later", "status": "on_fire"}
    small.tables.replace("queue_statuses", pa.Table.from_pylist(rows, schema=TABLES["queue_statuses"]))
    text = small.words("groups")
    assert "another-group" in text
    assert "fraud-scoring" not in text
    assert "on fire" in small.words("groups?search=later")


def test_kafkas_words_are_kept_for_kafkas_numbers(site: Site) -> None:
    """What pages about statuses show is acktrail's own: no page calls it a lag or a start offset, nor does a column."""
    for name in ("queue_statuses", "queue_trends", "run_totals"):
        assert not {"lag", "start_offset", "lag_most", "lag_unknown"} & set(TABLES[name].names)
    for path in PAGES:
        text = site.words(path)
        assert "Unfinished" in text, path
        assert not re.search(r"\bLag\b|\bStart offset\b", text), path


def test_what_changed_has_findings_and_gaps(own: Site) -> None:
    """Within the range of time: findings first seen, findings not seen any more, by severity; gaps that no
    reconciliation before it had found; of changes of one time the one to the worst status first."""
    runs = [("old", 50, 1, 5), ("late", 30, 2, 9), ("new", 0, 4, 20)]  # hours ago, gaps and their records so far
    totals = [
        {"cluster_id": "c", "run_id": run_id, "observed_at": NOW - timedelta(hours=hours, minutes=1),
         "run_number": number, "gaps": gaps, "gap_records": records}
        for number, (run_id, hours, gaps, records) in enumerate(runs)
    ]  # fmt: skip
    seen = [("new", "critical", 1, 0), ("new", "error", 60, 0), ("late", "warning", 60, 1), ("old", "error", 60, 50)]
    findings = [
        {"cluster_id": "c", "run_id": run_id, "rule": "missing_state", "severity": severity, "subject": str(number),
         "first_seen_at": NOW - timedelta(hours=first), "last_seen_at": NOW - timedelta(hours=last), "times_seen": 1}
        for number, (run_id, severity, first, last) in enumerate(seen)
    ]  # fmt: skip
    changes = [
        {"cluster_id": "c", "run_id": "new", "changed_at": NOW - timedelta(minutes=1), "group_id": f"to-{after}",
         "topic_id": "t", "partition": 0, "before": "ok", "after": after, "reason": "counts"}
        for after in ("idle", "stuck", "lagging")
    ]  # fmt: skip
    checks = [{"cluster_id": "c", "run_id": "new", "reconciled_at": NOW}]
    for name, rows in (
        ("run_totals", totals), ("reconcile_checks", checks), ("findings", findings), ("status_changes", changes)
    ):  # fmt: skip
        own.tables.append(name, rows)
    day, longer = own.words(""), own.words("?range=90d")
    assert re.findall("to-[a-z]+", day) == ["to-stuck", "to-lagging", "to-idle"]
    assert "New findings ■ critical 1 Findings gone ▲ warning 1 New gaps 2 gaps, 11 records lost" in day
    assert "New findings ■ critical 1 ■ error 1 Findings gone ■ error 1 ▲ warning 1 New gaps 4 gaps, 20" in longer


@pytest.mark.parametrize("group", ["g", *HOSTILE[:4]])
def test_the_fate_of_a_record(own: Site, root: Path, group: str) -> None:
    """By its offset: the conclusion, every change with a link to its state record, what is not known; an offset that
    the history does not have, and one that is no number, are explained on the page."""
    key = key_of(group)
    world = World(root, state_partitions=1)
    world.write(snapshot(key, 0, snapshot_epoch=0), update(key, 0, 1, (batch(5, 5, 4, 5),)))
    world.export("r1")
    build(world.tables)
    row = {"group_id": group, "topic_id": key.topic_id, "topic": "t", "partition": 0, "status": "ok", "run_id": "r1"}
    row |= {"observed_at": NOW, "status_since": NOW - timedelta(hours=1), "cluster_id": "c"}
    row |= {"evidence_state_partition": 0, "evidence_offset": 0}
    world.tables.append("queue_statuses", [row])
    asked = {"group": group, "topic": key.topic_id, "partition": 0}
    places = {at: "share-partition?" + urlencode({**asked, "offset": at}) for at in ("5", "6", "five", "9" * 19)}
    assert [own.page(place)[0] for place in places.values()] == [200] * 4
    found = {at: own.words(place) for at, place in places.items()}
    assert "Offset 5 of" in found["5"]
    assert "archived, delivery count 5, since state record 0:1" in found["5"]
    for offset in (0, 1):  # the newest state record, and the one of the step
        assert f"record?state-partition=0&offset={offset} state partition 0, offset {offset}" in found["5"]
    assert "when it was first delivered" in found["5"]
    assert "nothing recorded" in found["6"]
    assert "is no number" in found["five"]
    assert "is no number" in found["9" * 19]


def test_points_stand_at_their_observations_and_rates_between_them() -> None:
    """A level begins with the observation that shows it, and stays. Counts are divided by the time since the
    observation before; after an idle row, whose successors are left out, by one interval at most."""
    begin, minute = datetime(2026, 1, 1, tzinfo=UTC), timedelta(minutes=1)
    rows = [
        {"bucket_at": begin + at // 5 * 5 * minute, "bucket_ms": 300_000, "observed_at": begin + at * minute,
         "unfinished_records": level, "acknowledged": count}
        for at, level, count in ((9, 7, None), (10, 9, 120), (25, 0, 30), (27, 0, 0), (64, 4, 50), (71, None, None))
    ]  # fmt: skip
    trend = pa.Table.from_pylist(rows, schema=TABLES["queue_trends"])
    lag, rates = charts_of(trend, begin + timedelta(minutes=80), offsets=False)

    assert (lag.begin, lag.step) == (begin + 9 * minute, 5 * minute)
    assert lag.lines["unfinished records"] == (7, 9, 9, 9, *[0] * 7, 4, 4, *[None] * 3)
    assert rates.lines["acknowledged"] == (None, 120.0, 2.0, 2.0, 2.0, *[0.0] * 6, 10.0, None, None, 0.0, 0.0)
    data = json.loads(lag.data)
    assert (data["begin"], data["step"], data["lines"][0]["values"][1]) == (lag.begin.timestamp(), 300, 9)
    assert charts_of(trend.slice(0, 0), None, offsets=True) == []


def test_the_overview_says_that_the_checks_stopped_the_newest_run(small: Site) -> None:
    """Of the newest validation alone: a critical rule that is broken, or raised, stands first in the headline."""
    newest = max(small.tables.rows("run_totals"), key=lambda row: row["observed_at"])["run_id"]
    results = [
        {"cluster_id": "c", "run_id": newest, "evaluated_at": NOW - timedelta(minutes=age), "suite": "state_records",
         "expectation": f"r{number}", "severity": severity, "success": success}
        for number, (age, severity, success) in enumerate(
            [(9, "critical", False), (2, "critical", True), (2, "warning", False), (2, "critical", None)]
        )
    ]  # fmt: skip
    small.tables.append("quality_results", results)
    assert "The checks stopped" not in small.words("")
    small.tables.append("quality_results", [results[0] | {"evaluated_at": NOW - timedelta(minutes=1)}])
    assert "The checks stopped this run: " in small.words("")
