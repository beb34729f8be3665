"""`acktrail groups list` and `describe`: what a person and a program learn of many groups at once. Wrong addresses,
names, folders and clusters: one line, the right exit code, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from drivers.command_line import Done, loaded, run
from servers.workload import Workload, start_at

from acktrail.cli.group_answers import GroupAnswer
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail_embedded import EmbeddedBroker

PREFIX = f"list-{uuid4().hex[:8]}"
BUSY, IDLE, CLASSIC = f"{PREFIX}-busy", f"{PREFIX}-idle", f"{PREFIX}-classic"
ORDERS, BILLS = f"{PREFIX}-orders", f"{PREFIX}-bills"
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def server(broker: EmbeddedBroker) -> Iterator[str]:
    """Group IDLE has 7 records of ORDERS and 3 of BILLS before it and one share partition whose lag is not known; BUSY
    has accepted 5 of ORDERS; CLASSIC is a consumer group."""
    workload = Workload(broker.config())
    workload.create_topic(ORDERS, 2)
    workload.create_topic(BILLS)
    workload.produce(ORDERS, 7, partition=0)
    workload.produce(BILLS, 3)
    workload.acknowledge(BUSY, ORDERS, 5)
    start_at(broker.config(), IDLE, {(ORDERS, 0): 0, (BILLS, 0): 0})
    member = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": CLASSIC})
    member.subscribe([ORDERS])
    try:
        while not member.assignment():
            member.poll(0.2)
        yield broker.bootstrap_servers
    finally:
        member.close()


@pytest.fixture
def ask(server: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def asked(*arguments: str) -> Done:
        return run(capsys, "groups", *arguments, "--bootstrap-server", server)

    return asked


def test_the_list_counts_members_and_lag(ask: Callable[..., Done]) -> None:
    """A line for each matching group with state, members and the sum of the lags that the brokers describe."""
    rows = {row["group"]: row for row in ask("list", f"{PREFIX}-*", "--json").rows}

    assert set(rows) == {BUSY, IDLE}
    assert (rows[IDLE]["state"], rows[IDLE]["members"], rows[IDLE]["lag"]) == ("Empty", 0, 10)
    text = ask("list", f"{PREFIX}-*").stdout
    assert text.splitlines()[0].split() == ["GROUP", "STATE", "MEMBERS", "LAG"]
    assert [IDLE, "Empty", "0", "10"] in [line.split() for line in text.splitlines()]


def test_a_topic_leaves_out_other_topics_and_their_lag(ask: Callable[..., Done]) -> None:
    """With --topic only groups with state there are listed, and LAG counts that topic alone."""
    rows = ask("list", f"{PREFIX}-*", "--topic", f"{PREFIX}-b*", "--json").rows

    assert [(row["group"], row["lag"]) for row in rows] == [(IDLE, 3)]


def test_short_answers_load_what_they_need(server: str) -> None:
    """Arrays, tables and another client would take longer to load than the questions take."""
    plan = f"change plan reset --group {IDLE} --topic {ORDERS} --to-earliest"
    asked = (f"{words} --bootstrap-server {server}" for words in ("groups list", f"groups describe {IDLE}", plan))
    codes, modules = loaded(*asked)
    assert codes == [0, 0, 0]
    assert modules & {"numpy", "pyarrow", "pandas", "confluent_kafka", "deltalake"} == set()


def test_states_filter(ask: Callable[..., Done]) -> None:
    """--state keeps groups in that state, in any spelling; a state that share groups do not have is refused."""
    listed = ask("list", f"{PREFIX}-*", "--state", "empty", "--names", "--json").rows
    assert listed == [{"group": BUSY}, {"group": IDLE}]
    assert ask("list", f"{PREFIX}-*", "--state", "Stable", "--names").stdout.strip() == ""

    assert "PreparingRebalance" in ask("list", "--state", "PreparingRebalance").complaint(2)


def test_a_group_that_is_not_there_hides_no_other(ask: Callable[..., Done]) -> None:
    """What is known is shown, then the error; with --json each group has its description or its error."""
    done = ask("describe", IDLE, f"{IDLE}x")

    assert done.code == 2
    assert IDLE in done.stdout
    assert ORDERS in done.stdout
    assert f"did you mean '{IDLE}'" in done.stderr
    done = ask("describe", IDLE, f"{IDLE}x", "--json")
    described, missing = done.rows
    assert described["lag"] == 10
    assert (missing["error"]["type"], missing["error"]["exit_code"]) == ("UnknownName", 2)
    assert json.loads(done.stderr.splitlines()[-1])["error"]["type"] == "UnknownName"


def test_patterns(ask: Callable[..., Done]) -> None:
    """--group-glob describes every match, --topic leaves out other topics; no match is an error."""
    offsets = ask("describe", "--group-glob", f"{PREFIX}-*", "--topic", BILLS).stdout
    assert f"share group {BUSY!r} (Empty) has no offsets" in offsets
    assert [IDLE, BILLS, "0"] in [line.split()[:3] for line in offsets.splitlines()]
    assert ORDERS not in offsets
    assert "unknown share group that matches" in ask("describe", "--group-glob", f"{PREFIX}-zzz*").complaint(2)
    for words in (("list", f"{PREFIX}-*"), ("describe", IDLE)):
        assert f"nearest: {BILLS!r}" in ask(*words, "--topic", f"{BILLS}x").complaint(2)


def test_state_shows_each_group_as_a_whole(ask: Callable[..., Done]) -> None:
    """One line a group, with its coordinator, as `kafka-share-groups.sh --state` has it."""
    header, line = ask("describe", IDLE, "--state").stdout.splitlines()[:2]
    row = dict(zip(header.split(), line.split(), strict=True))

    assert row.pop("GROUP-EPOCH").isdigit()
    assert row == {
        "GROUP": IDLE,
        "COORDINATOR": "1",
        "ASSIGNOR": "simple",
        "STATE": "Empty",
        "#MEMBERS": "0",
        "LAG": "10",
    }
    assert "exclude each other" in ask("describe", IDLE, "--members", "--state").complaint(2)


def test_all_groups_are_every_share_group(ask: Callable[..., Done]) -> None:
    """--all-groups describes what the listing has, and excludes names."""
    described = {row["group"] for row in ask("describe", "--all-groups", "--json").rows}

    assert {BUSY, IDLE} <= described
    assert CLASSIC not in described
    assert "exclude each other" in ask("describe", IDLE, "--all-groups").complaint(2)
    assert "no group named" in ask("describe").complaint(2)


@pytest.mark.usefixtures("server")
def test_lag_that_is_not_known_is_no_zero(broker: EmbeddedBroker) -> None:
    """A start offset of -1 has no lag: the sum says that it leaves something out."""
    with ShareGroupAdmin(broker.config()) as admin:
        known = admin.describe_offsets(IDLE)

    lag = GroupAnswer(group_id=IDLE, offsets=(*known, replace(known[0], lag=None))).lag
    assert (lag.total, lag.known, lag.unknown, str(lag)) == (None, 10, 1, ">=10")


@pytest.fixture(name="acktrail")
def _acktrail(capsys: pytest.CaptureFixture[str]) -> Run:
    return partial(run, capsys)


def test_nobody_there(acktrail: Run, tmp_path: Path) -> None:
    """A wrong address is named, with exit code 4, and no table is made."""
    tables = tmp_path / "tables"
    for command in (["groups", "list"], ["run", "export", "--tables", str(tables)]):
        line = acktrail(*command, "--bootstrap-server", "127.0.0.1:1").complaint(4)
        assert "127.0.0.1:1" in line
    assert not tables.exists()


@pytest.mark.parametrize("address", [None, ""])
def test_no_broker_named(acktrail: Run, monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Without an address the line says how to give one; an empty one is none."""
    monkeypatch.delenv("ACKTRAIL_BOOTSTRAP_SERVERS", raising=False)
    if address is not None:
        monkeypatch.setenv("ACKTRAIL_BOOTSTRAP_SERVERS", address)
    line = acktrail("groups", "list").complaint(3)

    assert "--bootstrap-server" in line


@pytest.mark.broker
def test_a_new_cluster_has_no_share_group_and_everything_says_so(acktrail: Run, tmp_path: Path) -> None:
    """Where no share consumer ever came there is no state topic: a look that found nothing is a look. The README's
    order ends well, each command says what was seen and when, and no other run's answer stands in its place."""
    tables = ("--tables", tmp_path / "t")
    with EmbeddedBroker() as broker:
        names = ("--bootstrap-server", broker.bootstrap_servers, *tables)
        export = acktrail("run", "export", *names)
        done = [
            export,
            *(
                acktrail(*name.split(), *tables)
                for name in ("run reconcile", "run validate", "dashboard report", "status")
            ),
        ]
        assert [each.code for each in done] == [0] * 5, [each.stderr for each in done]
        at = export.stdout.splitlines()[-1].removeprefix("no share group on this cluster at ")
        for each in done:
            said = each.stdout.replace(f"{at[:10]} {at[11:19]} UTC", at)
            assert f"no share group on this cluster at {at}" in said.lower().replace(at.lower(), at), each.stdout
        assert acktrail("run", "reconcile", *tables).code == acktrail("status", *tables).code == 0
        assert json.loads(acktrail("status", "--json", *tables).stdout)["act_on"] == []


def test_tables_that_cannot_be_written(acktrail: Run, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A root below a file is refused with exit code 3, and the root is named."""
    file = tmp_path / "file"
    file.write_text("not a folder")
    arguments = ("--bootstrap-server", broker.bootstrap_servers, "--tables", file / "tables")

    assert str(file) in acktrail("run", "export", *arguments).complaint(3)


def test_a_client_configuration_is_not_shown(acktrail: Run, broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A line of the client configuration that cannot be read is named by number; its text, a secret maybe, is not."""
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=me\nhunter2-the-password\n")
    arguments = ("--bootstrap-server", broker.bootstrap_servers, "--client-config", file)

    line = acktrail("groups", "list", *arguments).complaint(3)

    assert "line 2" in line
    assert "hunter2" not in line
