"""One cause ends with one exit code, whichever command meets it: plan, apply or a deletion, dry run or not."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from drivers.command_line import Done, run
from servers.workload import Workload, start_at

from acktrail.change.planning.change_plan import Notice, Severity, refusal_error
from acktrail.embedded import EmbeddedBroker
from acktrail.errors import NotAuthorized
from acktrail.kafka.admin import ShareGroupAdmin

pytestmark = pytest.mark.broker

NAME = f"codes-{uuid4().hex[:8]}"
GROUP, TOPIC = f"{NAME}-group", f"{NAME}-orders"
TRY_AGAIN, FIX_THE_CONFIGURATION = 4, 3


@pytest.fixture(scope="module")
def workload(broker: EmbeddedBroker) -> Workload:
    made = Workload(broker.config())
    made.create_topic(TOPIC, 2)
    made.produce(TOPIC, 5)
    start_at(broker.config(), GROUP, {(TOPIC, 0): 0, (TOPIC, 1): 0})
    return made


@pytest.fixture
def ask(broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def asked(*arguments: str | Path) -> Done:
        where = ("--bootstrap-server", broker.bootstrap_servers, "--tables", tmp_path / "tables")
        return run(capsys, *arguments, *where)

    return asked


@pytest.fixture
def member(workload: Workload, broker: EmbeddedBroker) -> Iterator[str]:
    """A member of the group; its client id."""
    with workload.share_consumer(GROUP, TOPIC, **{"client.id": "night-shift"}) as consumer:
        with ShareGroupAdmin(broker.config()) as admin:
            while not admin.describe_group(GROUP).members:
                consumer.poll(0.2)
        yield "night-shift"


def commands(plan: Path) -> dict[str, tuple[str | Path, ...]]:
    """Every command that changes the group, as a dry run and for real."""
    changes: dict[str, tuple[str | Path, ...]] = {
        "apply": ("change", "apply", plan),
        "delete group": ("groups", "delete", GROUP),
        "delete offsets": ("groups", "delete-offsets", "--group", GROUP, "--topic", TOPIC),
    }
    planned = {"plan": ("change", "plan", "reset", "--group", GROUP, "--topic", TOPIC, "--to-earliest")}
    return {**planned, **changes, **{f"{name} --execute": (*change, "--execute") for name, change in changes.items()}}


def test_members_are_try_again_later(ask: Callable[..., Done], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """While the group has a member every command ends with 4 and names it; nothing is sent."""
    request.getfixturevalue("workload")
    plan = tmp_path / "plan.json"
    assert ask("change", "plan", "reset", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--out", plan).code == 0
    client = request.getfixturevalue("member")

    ends = {name: ask(*command) for name, command in commands(plan).items()}

    assert {name: done.code for name, done in ends.items()} == dict.fromkeys(ends, TRY_AGAIN)
    assert all(client in done.stderr for done in ends.values())


def test_a_dry_run_of_apply_shows_what_would_be_sent(
    ask: Callable[..., Done], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every start offset of the request, as text and as JSON; nothing is sent."""
    request.getfixturevalue("workload")
    plan = tmp_path / "plan.json"
    words = ("--group", GROUP, "--topic", f"{TOPIC}:0", "--to-latest", "--allow-skip", "--out", plan)
    planned = ask("change", "plan", "reset", *words)
    assert planned.code == 0, planned.stderr

    text = ask("change", "apply", plan)
    shown = json.loads(ask("change", "apply", plan, "--json").stdout)

    assert text.code == 0
    assert text.stdout.splitlines()[0].split() == ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "NEW-START-OFFSET"]
    assert shown["parts"] == [
        {"group": GROUP, "topic": TOPIC, "partition": 0, "start_offset": 0, "new_start_offset": 5}
    ]
    assert (shown["would_send"], shown["sent"]) == (1, 0)


def test_waiting_for_an_empty_group_ends_when_its_member_leaves(
    ask: Callable[..., Done], workload: Workload, broker: EmbeddedBroker
) -> None:
    """--wait-empty lets a command begin once the last member has left, and ends with 4 when none does in time."""
    consumer = workload.share_consumer(GROUP, TOPIC)
    with consumer as joined, ShareGroupAdmin(broker.config()) as admin:
        while not admin.describe_group(GROUP).members:
            joined.poll(0.2)
        assert ask("groups", "delete", GROUP, "--wait-empty", "0.5").code == TRY_AGAIN
    assert ask("groups", "delete", GROUP, "--wait-empty", "60").code == 0


def test_a_missing_right_is_a_configuration_to_fix() -> None:
    """Without READ on the topic, plan and apply end with 3 and name the ACL, as the broker's own refusal does."""
    refused = Notice(severity=Severity.REFUSAL, rule="unauthorized_topic", text="READ is missing", topic="orders")

    error = refusal_error([refused, refused], ())

    assert isinstance(error, NotAuthorized)
    assert error.exit_code == FIX_THE_CONFIGURATION
    assert "READ on topic 'orders'" in error.message
    assert "unauthorized_topic" in error.message
    assert "1 more" in error.message
