"""``acktrail expand check``: a look, keys, verdicts and rules in one step, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from drivers.command_line import Done, run
from extras.expansion.support.expanded_topic import ExpandedTopic, expanded_topic

from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.slow]


@pytest.fixture
def world(
    request: pytest.FixtureRequest, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ExpandedTopic]:
    monkeypatch.setenv("ACKTRAIL_SETTLE", "0s")
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "check-*=murmur2")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "classic-*")
    name = f"check-{request.node.name.replace('_', '-')}"
    with expanded_topic(broker.config(), tmp_path / "t", name, 2, ("classic",)) as found:
        yield found


def check(capsys: pytest.CaptureFixture[str], world: ExpandedTopic, *options: str, master: str = "in-process") -> Done:
    where = ("--tables", world.tables.uri, "--bootstrap-server", world.true.config.bootstrap_servers)
    return run(capsys, "expand", "check", world.true.name, *where, "--master", master, *options)


def test_order_that_was_broken(
    world: ExpandedTopic, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a group that needs order it fails a critical rule. Keys are read once, by Spark here, and named by digest;
    asked for, they are printed and stored nowhere. A topic that gained no partitions yet has nothing to say; nor have
    keys whose mapping is not known."""
    world.play("write half")
    calm = check(capsys, world)
    assert (calm.code, calm.stdout.count("no look shows that it gained partitions")) == (0, 1), calm
    world.play("apply 4 look write new look write new")
    with monkeypatch.context() as environment:
        environment.setenv("ACKTRAIL_KEY_MAPPINGS", "")
        assert "not certain: Which keys move" in check(capsys, world).stdout
    assert not any(row["keys_read_at"] for row in world.stored.rows("expansion_fences"))

    (found,) = check(capsys, world, "--json", master="local[2]").rows
    fences, verdicts = world.stored.rows("expansion_fences"), world.stored.rows("expansion_verdicts")
    assert {row["verdict"] for row in verdicts} == {"broken"}
    assert all(0 < row["keys_at_risk"] == len(row["keys"]) for row in verdicts)
    assert found["keys_at_risk"] is None

    shown = check(capsys, world, "--show-keys")
    assert shown.code == 6
    assert all(line.isprintable() for line in shown.stdout.splitlines())
    assert f"order broken: classic group {world.true.group('classic')}: " in shown.stdout
    assert "rule ordered_group_kept_order does not hold (critical)" in shown.stdout
    assert sum("key-" in line for line in shown.stdout.splitlines()) == sum(row["keys_at_risk"] for row in verdicts)
    assert world.stored.rows("expansion_fences") == fences, "keys that are known are read again and stored once"
    assert [row["keys"] for row in world.stored.rows("expansion_verdicts")] == [row["keys"] for row in verdicts]
    assert "key-" not in str([found, verdicts, fences, world.stored.rows("findings")]).replace("key-order", "")


def test_order_that_was_kept(world: ExpandedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    """While the expansion settles no keys are read, and it says until when; then a drained group is safe, with what is
    not seen beside it. Nothing is open, so that no keys are read. An unknown topic is one line."""
    world.play("write all look apply 4")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ACKTRAIL_SETTLE", "1h")
        settling = check(capsys, world)
    assert (settling.code, "every producer knows the count: they do from" in settling.stdout) == (0, True)
    check(capsys, world)
    world.play("write all look write all")
    kept = check(capsys, world)
    assert (kept.code, f"safe: classic group {world.true.group('classic')}: " in kept.stdout) == (0, True), kept
    assert "Not seen: work that was not committed" in kept.stdout
    assert not any(row["keys_read_at"] for row in world.stored.rows("expansion_fences"))
    world.true.name = "check-that-topic"
    assert "unknown topic 'check-that-topic'" in check(capsys, world).complaint(2)
