"""Findings, checks, rules, changes and the export as web pages, asked over HTTP; plans, their lives and the audit's
check as the pages of changes have them, from tables that real changes left."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from change.scenes import CLUSTER, attempt, unlocked
from dashboard.conftest import Site
from samples.dashboard_tables import HOSTILE, NOW, topic_id_of, write_evidence_tables
from servers.web_server import web_server

from acktrail.change import api
from acktrail.change.lifecycle.plan_life import ChangeStatus
from acktrail.change.planning.change_plan import with_hash
from acktrail.change.planning.notices import Notice, Severity
from acktrail.config import TablesConfig
from acktrail.group_changes.group_change_plan import ConfigStep, GroupChange, GroupChangePlan
from acktrail.model.rules.catalogue import QUALITY_RULES
from acktrail.tables.delta.store import Tables
from acktrail_dashboard.web.application import create_app
from acktrail_dashboard.web.pages.changes import STANDING_TONES, plan_story

RULE = "missing_state"
CHECKED_RUNS = 20


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[], Site]]:
    """Serves the tables of this test alone."""
    config = TablesConfig(uri=str(tmp_path / "tables"))
    with web_server(create_app(config, clock=lambda: NOW)) as url:
        yield lambda: Site(url, Tables(config))


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
    """Severity, rule, group, first sighting and standing; what is no filter is refused with the choices there are."""
    critical = site.page("findings?severity=critical&shown=all")[1]
    assert "poison_records_archived</" not in critical.split("<tbody")[1]
    assert site.page("findings?group=nobody")[1].count("No finding is so") == 1
    assert "No finding is so" in site.page("findings?since=1h")[1]
    assert "No finding is so" not in site.page("findings?since=2026-11-01T00:00:00Z")[1]
    for wrong in ("findings?severity=worst", "findings?since=yesterday", "findings?shown=some", "findings?page=x",
                  "findings?since=999999999999999999",
                  "record?state-partition=-1&offset=x",
                  "record?state-partition=1", "change", "check?run=a", "finding?rule=x", "rule"):  # fmt: skip
        status, text = site.page(wrong)
        assert (status, "problem-title" in text) == (400, True), wrong
    assert "does not name the suite and expectation" in site.page("check?run=a")[1]
    for unknown in (
        "change?plan=nothing",
        "rule?id=nothing",
        "finding?rule=a&subject=b",
        "check?run=a&suite=b&expectation=c",
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
    for rule in QUALITY_RULES:
        assert f"rule?id={rule.id}" in text
    one = QUALITY_RULES[0]
    text = site.page(f"rule?id={one.id}")[1]
    for part in (one.title, one.meaning, one.why, one.advice, *one.sources):
        assert re.sub("`(.*?)`", r"<code>\1</code>", part) in text


def test_every_alert_has_its_runbook_at_its_anchor(site: Site) -> None:
    """The page has each section of docs/runbooks.md, rendered: no mark of Markdown is left, and no link leads to a
    document that the dashboard does not have."""
    document = (Path(__file__).parents[2] / "docs/runbooks.md").read_text("utf-8")
    status, text = site.page("runbooks")
    assert status == 200
    for alert in re.findall(r"^## (.+)$", document, re.MULTILINE):
        assert f'<section id="{alert.lower()}"' in text
    content = text.split("<main", 1)[1].split("</main>", 1)[0]
    assert content.count("<strong>Means:</strong>") == document.count("**Means:**") > 20
    assert "<code>acktrail status</code>" in content
    assert not re.search(r"\*\*|\]\(|`|href=\"[^#\"]*\\.md", content)
    assert "reset (docs/reset.md)" in content
    assert 'href="#acktrailgaprecorded"' in content


def test_a_plan_has_its_whole_life_on_one_page(served: Callable[[], Site], tmp_path: Path) -> None:
    """Notices, share partitions, outcome and each step of the audit. The list says that the audit is whole, or names
    the row that somebody altered, and stays up; where it cannot be read, whether it is whole is not known. Every
    standing has a tone."""
    assert set(STANDING_TONES) == set(ChangeStatus)
    site = served()
    site.tables.prepare()
    write_evidence_tables(site.tables)
    status, text = site.page("change?plan=2026000001")
    assert status == 200
    words = ("done with are delivered again", "In flight, delivery counts dropped", "Verification", "planned")
    for part in (*words, "lease taken", "before call", "after call"):
        assert part in text, part
    assert "are a whole chain" in site.page("changes")[1]
    unlocked(tmp_path / "tables", "reset_audit").update(predicate="sequence = 1", updates={"actor": "'nobody'"})
    status, text = site.page("changes")
    assert status == 200
    assert "the audit is broken at row 1" in text
    assert "are a whole chain" not in text
    for file in (tmp_path / "tables/reset_audit").glob("*.parquet"):
        file.unlink()
    text = site.page("changes")[1]
    assert ("badge unknown" in text, "broken" in text, "a whole chain" in text) == (True, False, False)


def test_a_plan_has_on_its_page_what_only_its_kind_says(served: Callable[[], Site]) -> None:
    """Of a configuration the old and the new value, each line as it is, and hidden characters shown; and one line for
    notices that say the same."""
    site = served()
    step = ConfigStep(name=HOSTILE[0], before="latest", is_own=False, after="earliest")
    about = {"kind": "alter_configs", "strategy": "s", "created_by": "ann", "cluster": CLUSTER, "created_at_ms": 0}
    notices = tuple(Notice(Severity.WARNING, "r", f"{count} records", "g") for count in (3, 5))
    plan = GroupChangePlan(plan_id="p", parts=(GroupChange(group_id="g", configs=(step,)),), notices=notices, **about)
    api.store_plan(site.tables.config, with_hash(plan))
    text = site.page("change?plan=p")[1]
    assert re.search(r"<pre[^>]*>GROUP +NAME.+\ng +\S.* +latest +default +earliest\n</pre>", text)
    assert "3 to 5 records" in text


def test_pages_of_tables_that_are_not_there_say_so(served: Callable[[], Site]) -> None:
    """Nothing was exported yet: every page is there, and none claims that all is well."""
    site = served()
    expected = {
        "findings": "Nothing was reconciled yet", "checks": "No run was validated yet",
        "changes": "No plan was made yet", "export": "Nothing was exported yet", "rules": "what must be true",
        "record?state-partition=0&offset=0": "no record at this offset",
    }  # fmt: skip
    for path, words in expected.items():
        status, text = site.page(path)
        assert (status, words in text) == (200, True), path


def test_tables_that_cannot_be_read_are_named_and_pages_stay(served: Callable[[], Site], tmp_path: Path) -> None:
    """Half written, emptied, gone, of a newer version: the page names the table with 503, and shows what it can."""
    site, root = served(), tmp_path / "tables"
    site.tables.prepare()
    write_evidence_tables(site.tables)
    site.tables.append("findings", [{"rule": RULE, "severity": "critical", "subject": "s", "cluster_id": "c"}])
    for file in (root / "findings").glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:100])
    newest = max((root / "quality_results" / "_delta_log").glob("*.json"))
    protocol = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99, "readerFeatures": ["later"]}}
    newest.with_name(f"{int(newest.stem) + 1:020d}.json").write_text(json.dumps(protocol) + "\n")
    for file in (root / "export_ranges").glob("*.parquet"):
        file.unlink()
    shutil.rmtree(root / "state_records" / "_delta_log")
    for path, table in (("findings", "findings"), ("checks", "quality_results"), ("export", "export_ranges")):
        status, text = site.page(path)
        assert status == 503, path
        assert table in text.split("</main>", maxsplit=1)[0], path
        assert "Some tables cannot be read" in text
    assert site.page("record?state-partition=17&offset=90210")[0] in {200, 503}
    assert site.page("changes")[0] == 200


def test_a_stored_plan_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    """Its page says that its hash is another, and shows no notice of it."""
    attempt(tmp_path, 1)
    edit = {"plan": 'replace(plan, \'"reason": "\', \'"reason": "edited \')'}
    unlocked(tmp_path, "reset_plans").update(predicate="plan_id = '2026000001'", updates=edit)
    story = plan_story(TablesConfig(uri=str(tmp_path)), "2026000001")
    assert "hash" in story["plan_problem"]
    assert (story["notices"], story["partitions"]) == ((), [])
