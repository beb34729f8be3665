"""A redrive whose answers are lost, and one whose principal lacks a right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from drivers.command_line import run
from extras.redrive.poisoned import ALL, POISON, Poisoned
from servers.guarded_broker import GuardedBroker
from servers.kafka_proxy import kafka_proxy
from servers.workload import Workload, until

from acktrail.change import api
from acktrail.change.cluster import Cluster
from acktrail.errors import NotAuthorized, OutcomeUnknown
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail_redrive import redrive_kind
from acktrail_redrive.redrive_headers import COUNT, header_number

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

END_TXN, PRODUCE = 26, 0


def test_lost_answers_double_nothing(poisoned: Poisoned) -> None:
    """The connection ends before the answer to a commit, then before the answer to records: each is written once."""
    for api_key in (END_TXN, PRODUCE):
        topic = poisoned.target()
        plan = poisoned.planned(topic)
        with kafka_proxy(poisoned.kafka.bootstrap_servers) as proxy:
            proxy.cuts[api_key].append(0.0)
            away = replace(poisoned, kafka=proxy.config(30_000))
            assert away.apply(plan).groups == {poisoned.name: "done"}
            assert proxy.spoiled[api_key] == 1
        assert poisoned.arrived(topic) == ALL
        poisoned.check_places(plan, topic)


def test_forgotten_transaction_is_unknown(poisoned: Poisoned, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that may have forgotten an id does not show that nothing was written: nothing is sent again."""
    topic = poisoned.target()
    plan = poisoned.planned(topic)
    poisoned.killed(plan, "begun", 1)
    monkeypatch.setattr(redrive_kind, "broker_config", lambda *_: "1")
    assert poisoned.find_out(plan).groups == {poisoned.name: "forgotten"}
    with pytest.raises(OutcomeUnknown) as caught:
        poisoned.apply(plan)
    assert f"{plan.plan_id} in the header acktrail.redrive.plan" in caught.value.hint
    assert poisoned.arrived(topic) == []
    monkeypatch.undo()
    assert poisoned.find_out(plan).groups == {poisoned.name: "not_done"}


@pytest.mark.parametrize(
    ("value", "number"), [(b"3", 3), (b"", None), (None, None), (b"x", None), (b"9" * 5_000, None)]
)
def test_header_of_somebody_else_is_no_number(value: bytes | None, number: int | None) -> None:
    assert header_number([(b"acktrail.redrive.count", b"7"), (b"acktrail.redrive.count", value)], COUNT) == number


def test_missing_right_is_one_line(guarded: GuardedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Checked before the first record, one after the other: the topics, then the ids of transactions."""
    world = Poisoned.at(guarded.config(), tmp_path)
    world.begin()
    login = tmp_path / "client.properties"
    login.write_text("".join(f"{name}={value}\n" for name, value in guarded.client_properties().items()))
    world.export(capsys, "--client-config", str(login))
    topic = world.target()
    plan = world.planned(topic)
    user, admin = replace(world, kafka=guarded.config("sinker")), Workload(guarded.config())

    def missing() -> str:
        with Cluster(user.kafka) as cluster, pytest.raises(NotAuthorized) as caught:
            api.recheck(cluster, user.tables, plan)
        return f"{caught.value.operation} on {caught.value.resource}"

    rights = (
        (f"DESCRIBE on topic {world.topic}", ("READ", "TOPIC", world.topic)),
        (f"DESCRIBE on topic {topic}", ("WRITE", "TOPIC", topic)),
        ("WRITE on transactional id", ("WRITE", "TRANSACTIONAL_ID", "*")),
    )
    for said, granted in rights:
        until(lambda said=said: said in missing(), what=said)
        admin.allow("sinker", *granted)

    def may_apply() -> bool:
        try:
            with Cluster(user.kafka) as cluster:
                return len(api.recheck(cluster, user.tables, plan)) == 1
        except NotAuthorized:
            return False

    until(may_apply, what="all rights")
    assert world.arrived(topic) == []
    assert user.apply(plan).groups == {world.name: "done"}
    assert len(world.arrived(topic)) == POISON
    assert "sinker" in to_librdkafka(user.kafka)["sasl.username"]
    assert run(capsys, "change", "list", "--tables", user.tables.uri).code == 0
