"""``acktrail expand check``: a look, keys, verdicts and rules in one step, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drivers.command_line import Done, run
from expansion.support.expanded_topic import ExpandedTopic, expanded_topic

from acktrail.embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "check-*=murmur2")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "classic-*")


@pytest.fixture
def world(request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path: Path) -> Iterator[ExpandedTopic]:
    name = f"check-{request.node.name.replace('_', '-')}"
    with expanded_topic(broker.config(), tmp_path / "t", name, 2, ("classic",)) as found:
        yield found


def check(capsys: pytest.CaptureFixture[str], world: ExpandedTopic, *options: str) -> Done:
    where = ("--tables", world.tables.uri, "--bootstrap-server", world.true.config.bootstrap_servers)
    return run(capsys, "expand", "check", world.true.name, *where, "--master", "in-process", *options)


def rows(world: ExpandedTopic, name: str) -> list[dict[str, Any]]:
    return world.stored.rows(name)


def test_order_that_was_broken(world: ExpandedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a group that needs order it fails a critical rule. Keys are read once, and named by digest; asked for, they
    are printed and stored nowhere. A topic that gained no partitions yet has nothing to say."""
    world.play("write half")
    calm = check(capsys, world)
    assert (calm.code, calm.stdout.count("no look shows that it gained partitions")) == (0, 1), calm
    world.play("apply 4 look write new look write new")

    unread = check(capsys, world, "--no-keys")
    assert "keys" not in unread.stdout.split("acktrail expand check")[0]
    assert not any(row["keys_read_at"] for row in rows(world, "expansion_fences"))
    shown = check(capsys, world, "--show-keys")
    assert shown.code == 6
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    assert f"order broken: classic group {world.true.group('classic')}: " in shown.stdout
    assert "key at risk" in shown.stdout
    assert "rule ordered_group_kept_order does not hold (critical)" in shown.stdout
    verdicts = rows(world, "expansion_verdicts")
    assert {row["verdict"] for row in verdicts} == {"broken"}
    assert all(0 < row["keys_at_risk"] == len(row["keys"]) for row in verdicts)
    assert "key-" not in str([verdicts, rows(world, "expansion_fences"), rows(world, "findings")])

    again = check(capsys, world, "--json")
    (found,) = again.rows
    assert again.code == 6
    assert "key-" not in again.stdout.replace("key-order", "")
    assert (found["keys_at_risk"], found["keys_not_read"]) == ([], None)
    kept = {(row["partition"], row["keys_at_risk"]) for row in rows(world, "expansion_verdicts")}
    assert kept == {(row["partition"], row["keys_at_risk"]) for row in verdicts}, "an audit keeps what keys showed"


def test_order_that_was_kept(world: ExpandedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    """While the expansion settles no keys are read, and it says until when; then a drained group is safe, with what is
    not seen beside it. Nothing is open, so that no keys are read."""
    world.play("write all look apply 4")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACKTRAIL_SETTLE", "1h")
        settling = check(capsys, world)
    assert "Whether every producer knows the count: they do from" in settling.stdout
    assert settling.code == 0
    check(capsys, world)
    world.play("write all")
    check(capsys, world)
    world.play("write all")
    kept = check(capsys, world)
    assert kept.code == 0
    assert f"safe: classic group {world.true.group('classic')}: " in kept.stdout
    assert "Not seen: work that was not committed" in kept.stdout
    assert "keys of" not in kept.stdout


def test_keys_that_cannot_be_judged_are_not_read(
    world: ExpandedTopic, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known mapping verdicts rest on intervals, and it says so; an unknown topic is one line."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "")
    world.play("write half look client 4 look write new look write new")
    shown = check(capsys, world)
    assert "keys were not read: how producers map keys to partitions is not known" in shown.stdout
    world.true.name = "check-that-topic"
    assert "unknown topic 'check-that-topic'" in check(capsys, world).complaint(2)
