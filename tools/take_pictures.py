"""Take the pictures of pages in docs/images: ``tools/take_pictures.py DEMO [NAME…]``, and of the tab of a run in
Airflow: ``tools/take_pictures.py http://admin:PASSWORD@127.0.0.1:PORT``, where ``acktrail demo --serve --with-faults``
serves it; those of a reset in Airflow: ``tools/take_pictures.py reset``.

DEMO is the folder that ``acktrail demo --with-faults --out DEMO`` wrote: who is in trouble there and what broke a rule
are a real broker's, as is the poison record (README.md's commands are run for it). What a demo of a minute does not
have (days of lines, many runs) is of the tables that the tests make, and hold to what the jobs leave.
Chromium is needed.
With NAMEs only the pictures whose name has one of them are taken.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests/support"))

from drivers.airflow_scene import AirflowPages, AirflowReviewer, Scene, asked_until  # programs of the tests
from drivers.axe import show_as
from drivers.browser import Page, browsing
from integration.test_documented_commands import Block, prepared_broker, run_lines, run_of
from samples.dashboard_tables import Sizes, topic_id_of, write_dashboard_tables, write_evidence_tables
from samples.history_tables import build
from servers.web_server import web_server
from servers.workload import Workload

from acktrail.config import TablesConfig
from acktrail.tables.delta.store import Tables
from acktrail_connect.export.export_run import export
from acktrail_dashboard.report import publish
from acktrail_dashboard.web.application import create_app
from acktrail_embedded.airflow_api import AirflowApi
from acktrail_embedded.airflow_standalone import AirflowStandalone
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs/images"
_STUCK: Final = urlencode({"group": "fraud-scoring", "topic": topic_id_of("payments"), "partition": 0})
_DAGS: Final = FOLDER.parents[1] / "dags"
_STOPPED: Final = "acktrail_reconcile"
_RESET: Final = "acktrail_reset_offsets"
_HISTORY: Final = Block(document="docs/tutorials/poison-record.md", lines=("acktrail run history",), not_run=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A part of a page: `address` on the site, seen `width` pixels wide, `height` of them from the top; `begin`: from
    this element on."""

    name: str
    address: str
    scheme: str = "light"
    width: int = 1280
    height: int = 900
    begin: str = ""


def _of_samples() -> Iterable[Picture]:
    yield Picture(name="dashboard-group-dark", address="group?id=fraud-scoring&range=24h", scheme="dark", height=1500)
    yield Picture(name="dashboard-share-partition-light", address=f"share-partition?{_STUCK}&range=24h", height=1500)
    yield Picture(name="dashboard-checks", address="checks?suite=state_records", height=900)
    yield Picture(name="reset-audit", address="change?plan=2026000001", height=505, begin="#audit")


def _of_demo(tables: Tables) -> Iterable[Picture]:
    finding = min(
        (row for row in tables.rows("findings", {"severity": "critical"}) if row["evidence_offset"] is not None),
        key=lambda row: row["rule"],
    )
    about = urlencode({"rule": finding["rule"], "subject": finding["subject"]})
    yield Picture(name="dashboard-overview-light", address="?range=1h", height=1100)
    yield Picture(name="dashboard-overview-phone", address="?range=1h", width=390, height=1400)
    yield Picture(name="dashboard-findings", address="findings", height=900)
    yield Picture(name="dashboard-finding", address=f"finding?{about}", height=1140)


def _of_poison(tables: Tables) -> Iterable[Picture]:
    (row,) = tables.rows("queue_statuses")
    own = urlencode({"group": row["group_id"], "topic": row["topic_id"], "partition": row["partition"], "offset": 7})
    yield Picture(name="dashboard-poison-group", address=f"group?{urlencode({'id': row['group_id']})}", height=600)
    yield Picture(name="dashboard-record-fate", address=f"share-partition?{own}", height=420, begin="#record")


def take(tab: Page, url: str, picture: Picture, folder: Path) -> None:
    show_as(tab, picture.scheme, picture.width, picture.height)
    tab.open("about:blank")
    tab.until("location.href === 'about:blank'")
    tab.open(url + picture.address)
    tab.until("location.href !== 'about:blank' && document.readyState === 'complete'")
    tab.until("[...document.querySelectorAll('figure[data-chart]')].every(each => each.matches('.drawn'))")
    if picture.begin:
        tab.value(f"document.querySelector({picture.begin!r}).scrollIntoView({{behavior: 'instant'}})")
    tab.picture(folder / f"{picture.name}.png")
    print(picture.name)


def main(demo: Path, names: tuple[str, ...], folder: Path = FOLDER) -> None:
    """Take them all, or those that are named, one after the other in one tab."""
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tab = stack.enter_context(browsing(own / "browser"))
        taken = Tables(TablesConfig(uri=str(demo / "tables")))
        _take_all(tab, taken, _of_demo(taken), folder, names)
        _take_all(tab, _sample_tables(own / "tables"), _of_samples(), folder, names)
        if not names or any(name in "dashboard-poison-group dashboard-record-fate" for name in names):
            poison = _poison_tables(own / "poison")
            _take_all(tab, poison, _of_poison(poison), folder, names)
        if not names or any(name in "report" for name in names):
            page = publish(taken.config, None, own / "reports", kept=1).page
            take(tab, page.as_uri(), Picture(name="report", address="", height=1100), folder)


def _take_all(tab: Page, tables: Tables, pictures: Iterable[Picture], folder: Path, names: tuple[str, ...]) -> None:
    """On a clock that is a minute past the newest reconciliation."""
    newest = max(row["observed_at"] for row in tables.rows("run_totals", columns=["observed_at"]))
    clock = newest + timedelta(minutes=1)
    with web_server(create_app(tables.config, clock=lambda: clock)) as url:
        for picture in pictures:
            if not names or any(name in picture.name for name in names):
                take(tab, url, picture, folder)


def take_run_tab(airflow: str, folder: Path = FOLDER) -> None:
    """The tab of the run that the gate stopped."""
    place = urlsplit(airflow)
    api = AirflowApi(place.hostname or "", place.port or 0, user=place.username or "", password=place.password or "")
    failed = api.send("GET", f"/api/v2/dags/{_STOPPED}/dagRuns?state=failed&order_by=-id&limit=1")["dag_runs"][0]
    with tempfile.TemporaryDirectory() as profile, browsing(Path(profile)) as tab:
        show_as(tab, "light", 1400, 1000)
        pages = AirflowPages(tab, f"http://{place.hostname}:{place.port}", api.token())
        pages.open(pages.run_tab(_STOPPED, failed["dag_run_id"]))
        pages.frame_has("Rules that fail")
        tab.picture(folder / "airflow-run-tab.png")


def take_reset(folder: Path = FOLDER) -> None:
    """The form of a reset, what its approval shows and its run, by an Airflow and a broker of their own."""
    with ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        tables = TablesConfig(uri=str(own / "tables"))
        standalone = AirflowStandalone(_DAGS, folder=own / "airflow", env={"ACKTRAIL_TABLES": tables.uri})
        running, broker = stack.enter_context(standalone), stack.enter_context(EmbeddedBroker())
        workload = Workload(broker.config())
        for topic, acknowledged in (("orders", 20), ("bills", 12)):
            workload.create_topic(topic)
            workload.produce(topic, 20)
            workload.acknowledge("order-fulfilment", topic, acknowledged)
        export(broker.config(), tables)
        build(Tables(tables))
        api = AirflowReviewer.of(standalone)
        api.add_connection("acktrail_kafka", host=broker.bootstrap_servers)
        running.watch().wait_for_dag(_RESET, timeout_s=300)
        api.set_paused(_RESET, paused=False)
        tab = stack.enter_context(browsing(own / "browser"))
        show_as(tab, "light", 1400, 1000)
        pages = AirflowPages(tab, running.url, api.token())

        def take_page(name: str, path: str, shown: str, *, button: str = "") -> None:
            pages.open(path)
            if button:
                tab.press(button)
            tab.until(f"document.body.innerText.includes({shown!r})")
            tab.until("document.getAnimations().every(each => each.effect.getTiming().iterations === Infinity)")
            tab.picture(folder / f"{name}.png")
            print(name)

        take_page("reset-form", f"dags/{_RESET}", "Share groups", button="Trigger")
        order = {"groups": ["order-fulfilment"], "all_topics": True, "strategy": "to-earliest", "dry_run": False}
        run_id = api.trigger(_RESET, {**order, "reason": "orders were booked twice"})
        named = {"logs": own / "airflow/logs", "messages": own, "url": running.url, "tokens": ()}
        scene = Scene(api=api, broker=broker, tables=tables, **named)
        approval = scene.approval(run_id)
        run = f"dags/{_RESET}/runs/{quote(run_id, safe='')}"
        take_page("reset-approval", f"{run}/tasks/approve/required_actions", ", repeats ")
        scene.answer(approval, "Approve")
        asked_until(lambda: api.run(_RESET, run_id).state == "success", "the run")
        take_page("reset-run", run, "check_result")


def _sample_tables(root: Path) -> Tables:
    sizes = Sizes(groups=8, partitions_a_group=4, runs=48, fine_days=1, hourly_days=7, names=())
    tables = write_dashboard_tables(root, sizes)
    write_evidence_tables(tables)
    return tables


def _poison_tables(folder: Path) -> Tables:
    """The tables of docs/tutorials/poison-record.md before the reset, by the documents' own commands on a broker."""
    folder.mkdir()
    with prepared_broker("4.3.1", folder) as broker:
        for ran in run_lines(folder, broker.bootstrap_servers, [*run_of(("README.md",)), _HISTORY]):
            assert ran.code == 0, ran
    return Tables(TablesConfig(uri=str(folder / "tables")))


if __name__ == "__main__":
    if sys.argv[1].startswith("http"):
        take_run_tab(sys.argv[1])
    elif sys.argv[1] == "reset":
        take_reset()
    else:
        main(Path(sys.argv[1]), tuple(sys.argv[2:]))
