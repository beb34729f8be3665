"""Every page of the dashboard in a headless browser, from the click to the loaded page."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from table import Row

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/support"))

from drivers.browser import Page, browsing  # programs of the tests
from samples.dashboard_tables import NOW, Sizes, topic_id_of, write_dashboard_tables, write_evidence_tables
from servers.web_server import web_server

from acktrail.config import TablesConfig
from acktrail_dashboard.web.application import create_app

_STUCK = f"group=fraud-scoring&topic={topic_id_of('payments')}&partition=0"
_PAGES = {
    "overview": "?range=90d",
    "groups": "groups",
    "share partitions": "share-partitions?page=2",
    "a group": "group?id=fraud-scoring&range=90d",
    "a share partition": f"share-partition?{_STUCK}&range=90d",
    "findings": "findings",
    "checks": "checks?runs=20",
    "export": "export",
    "resets": "resets",
}
_TIMES = """JSON.stringify((() => {
  const page = performance.getEntriesByType('navigation')[0], files = performance.getEntriesByType('resource');
  const bytes = (name) => [page, ...files].reduce((sum, each) => sum + each[name], 0) / 1000;
  return {ms: page.loadEventEnd, sent: bytes('encodedBodySize'), whole: bytes('decodedBodySize')};
})())"""


def compare(
    groups: int = 500, partitions: int = 10, runs: int = 25_920, fine_days: float = 2, hourly_days: float = 88,
    rounds: int = 5,
) -> list[Row]:  # fmt: skip
    """The table's rows: the first visit of each page, and the median of `rounds` more; the browser keeps no file."""
    sizes = Sizes(groups=groups, partitions_a_group=partitions, runs=runs, fine_days=fine_days, hourly_days=hourly_days)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "tables")
        write_evidence_tables(write_dashboard_tables(root, sizes), runs=runs)
        app = create_app(TablesConfig(uri=str(root)), clock=lambda: NOW)
        app.state.prepare()
        with web_server(app) as url, browsing(Path(folder, "browser")) as tab:
            tab.call("Network.enable")
            tab.call("Network.setCacheDisabled", cacheDisabled=True)
            for name, address in _PAGES.items():
                first, *others = [_visit(tab, url + address) for _ in range(1 + rounds)]
                rows.append(_row(name, groups * partitions, fine_days + hourly_days, first, others))
    return rows


def _visit(tab: Page, url: str) -> dict[str, Any]:
    tab.value("window.isOld = true")
    tab.open(url)
    tab.until("!window.isOld && performance.getEntriesByType('navigation')[0].loadEventEnd > 0", timeout_s=60)
    found: dict[str, Any] = json.loads(tab.value(_TIMES))
    return found


def _row(name: str, count: int, days: float, first: dict[str, Any], others: list[dict[str, Any]]) -> Row:
    return Row(
        what=f"{name}, {count:,} share partitions, {days:g} days",
        ours=f"{median(each['ms'] for each in others):.0f} ms (first visit {first['ms']:.0f})",
        beside=f"bound: 500 ms, 200 kB; {first['sent']:.0f} kB sent, {first['whole']:.0f} kB unpacked",
    )
