"""Deletions and configurations: what their plans say, what becomes of them, what takes deletions back. On real
brokers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from change.world import ONE_RELEASE, RECORDS, TOPIC, Command, Scene
from confluent_kafka import AcknowledgeType, Consumer, TopicPartition
from drivers.command_line import Done
from servers.workload import start_at, until

from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.view.audit_integrity import checked_audit

pytestmark = pytest.mark.broker

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def planned(done: Done) -> dict[str, Any]:
    """A plan, which has many lines."""
    return json.loads(done.stdout)


def deleted(done: Done) -> str:
    """The id of the plan of a deletion that was carried out."""
    found = done.answer
    assert set(found["groups"].values()) == {"DONE"}
    return str(found["plan_id"])


def begun(scene: Scene, records: int = 10) -> tuple[str, str]:
    """A topic, and a group that has 0 to 3 behind it, and above acknowledged, archived and released records."""
    topic, group = f"gone-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    scene.make_topic(topic, 1, records)
    start_at(scene.kafka, group, {(topic, 0): 0})
    fates = {4: RELEASE, 6: REJECT, 8: REJECT, 9: RELEASE}
    scene.settle(group, topic, records, lambda part: fates.get(part[1], ACCEPT))
    return topic, group


@ONE_RELEASE
def test_configurations_are_taken_back(scene: Scene, ask: Command) -> None:
    """An undo gives two groups back what each had: a value of its own, and none. What was changed since is refused by
    name, unless it is allowed; what changed nothing has nothing to take back."""
    name, kept, bare = "share.record.lock.duration.ms", scene.group(), scene.group()
    scene.workload.configure_group(kept, **{name: "20000"})

    def own() -> list[str | None]:
        with ShareGroupAdmin(scene.kafka) as admin:
            return [
                (one.configs or {}).get(name) if name in one.own else None for one in admin.group_configs([kept, bare])
            ]

    until(lambda: own() == ["20000", None], what="the configuration to be known")
    both = ("--group", kept, "--group", bare)
    done = ask("groups", "config", "set", *both, f"{name}=40000", "--execute", "--json").answer["plan_id"]
    assert own() == ["40000", "40000"]
    scene.workload.configure_group(kept, **{name: "30000"})
    until(lambda: own() == ["30000", "40000"], what="the other change to be known")
    refused = ask("change", "undo", done, "--execute")
    assert (refused.code, f"{name} is 30000 now" in refused.stderr) == (2, True), refused
    assert own() == ["30000", "40000"]
    assert ask("change", "undo", done, "--topic", TOPIC).complaint(2)
    undo = ask("change", "undo", done, "--execute", "--allow-moved-on", "--json")
    assert (undo.code, own()) == (0, ["20000", None]), undo
    assert f"takes back {done}" in ask("change", "show", undo.answer["plan_id"]).stdout
    planned_only = planned(ask("groups", "config", "set", *both, f"{name}=40000", "--json"))["plan_id"]
    assert "[nothing_to_undo]" in ask("change", "undo", planned_only).complaint(2)


@pytest.mark.parametrize("setting", ["earliest", "latest"])
def test_a_deletion_says_what_it_takes_and_where_the_group_begins_again(
    scene: Scene, ask: Command, setting: str
) -> None:
    """The text has the group's name, what is acknowledged and archived, and where the group would begin should it come
    back. There it begins, and gets as many records as the plan says."""
    topic, group = begun(scene)
    scene.workload.configure_group(group, share_auto_offset_reset=setting)
    text = ask("groups", "delete", group).stdout
    assert f"group(s) {group};" in text
    assert "2 acknowledged and 2 archived records above them would be delivered again, 2 in flight" in text
    assert f"share.auto.offset.reset={setting} decides where it begins" in text
    made = planned(ask("groups", "delete", group, "--json"))
    (row,) = made["partitions"]
    assert row["target_offset"] == (0 if setting == "earliest" else 10)
    assert made["totals"]["skipped"] == (0 if setting == "earliest" else 2)
    assert made["totals"]["to_deliver"] == (10 if setting == "earliest" else 0)

    deletion = deleted(ask("groups", "delete", group, "--execute", "--json"))
    (outcome,) = ask("change", "show", deletion, "--json").answer["executions"]
    assert (outcome["status"], outcome["partition"]) == ("OK", 0)
    if setting == "earliest":
        assert len(scene.deliveries(group, topic, made["totals"]["to_deliver"])) == 10


@pytest.mark.few(1)
@pytest.mark.parametrize("what", ["group", "offsets"])
def test_an_undo_sets_the_start_offsets_that_a_deletion_took(scene: Scene, ask: Command, what: str) -> None:
    """Exported, planned with what was finished and comes again, and carried out: the group gets exactly that. What was
    taken back is not taken back twice."""
    topic, group = begun(scene)
    words = (
        ("groups", "delete", group)
        if what == "group"
        else ("groups", "delete-offsets", "--group", group, "--topic", topic)
    )
    deletion = deleted(ask(*words, "--execute", "--json"))
    assert scene.starts(group) == []

    plan = planned(ask("change", "undo", deletion, "--json"))
    assert (plan["kind"], plan["undoes"], plan["partitions"][0]["target_offset"]) == ("undo", deletion, 4)
    totals = plan["totals"]
    assert (totals["to_deliver"], totals["delivered_again"], totals["skipped"]) == (6, 4, 0)
    assert (totals["acknowledgements_forgotten"], totals["archived_forgotten"]) == (2, 2)
    assert totals["in_flight_discarded"] == 2
    assert {"states_stay_forgotten", "archived_again", "delivered_again"} <= {one["rule"] for one in plan["notices"]}

    done = ask("change", "undo", deletion, "--execute")
    assert done.code == 0, done.stderr
    assert scene.starts(group) == [4]
    assert len(scene.deliveries(group, topic, totals["to_deliver"])) == 6
    assert "standing UNDONE" in ask("change", "show", deletion).stdout
    assert "[plan_undone]" in ask("change", "undo", deletion).complaint(2)
    checked_audit(scene.tables)


def test_an_undo_is_refused_where_the_group_began_again(scene: Scene, ask: Command) -> None:
    """Somebody set a start offset since: the undo says so, and is done where that is allowed."""
    topic, group = begun(scene)
    deletion = deleted(ask("groups", "delete", group, "--execute", "--json"))
    start_at(scene.kafka, group, {(topic, 0): 7})
    refused = ask("change", "undo", deletion, "--execute")
    assert (refused.code, "[moved_on]" in refused.stderr) == (2, True)
    assert scene.starts(group) == [7]
    assert ask("change", "undo", deletion, "--execute", "--allow-moved-on").code == 0
    assert scene.starts(group) == [4]


def test_a_deletion_is_planned_stored_and_applied_as_a_reset(scene: Scene, ask: Command, tmp_path: Path) -> None:
    """A plan that was only shown is stored; records that came since do not make it stale, work of the group does."""
    topic, group = begun(scene)
    scene.workload.configure_group(group, share_auto_offset_reset="latest")
    made = planned(ask("groups", "delete", group, "--json"))
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(made))
    scene.workload.produce(topic, 3)
    assert ask("change", "apply", str(file)).code == 0
    again = planned(ask("groups", "delete", group, "--json"))
    assert again["totals"]["skipped"] == made["totals"]["skipped"] + 3
    scene.settle(group, topic, 1, lambda _: ACCEPT)
    assert "[preview_changed]" in ask("change", "apply", made["plan_id"], "--execute").complaint(2)
    assert ask("change", "apply", planned(ask("groups", "delete", group, "--json"))["plan_id"], "--execute").code == 0
    assert scene.starts(group) == []


@ONE_RELEASE
def test_a_deletion_is_shown_first_and_done_as_shown(scene: Scene, ask: Command) -> None:
    """The preview names what is lost and changes nothing."""
    group = scene.group()
    wanted = ("groups", "delete-offsets", "--group", group, "--topic", TOPIC)
    assert f"did you mean {TOPIC!r}" in ask(*wanted[:-1], f"{TOPIC}x", tables=False).stderr
    preview = planned(ask(*wanted, "--json", tables=False))
    assert scene.starts(group) == [5, 5]
    assert {n["rule"] for n in preview["notices"]} == {"state_is_lost", "begins_again", "skips"}
    assert [(row["start_offset"], row["impact"]["skipped"]) for row in preview["partitions"]] == [(5, RECORDS - 5)] * 2

    assert ask(*wanted, "--execute", "--json").answer["groups"] == {group: "DONE"}
    assert scene.starts(group) == []
    again = ask(*wanted)
    assert (again.code, "[no_such_state]" in again.stderr) == (2, True)


@ONE_RELEASE
def test_groups_are_deleted_where_they_are_share_groups(scene: Scene, ask: Command) -> None:
    """R004-31: a share group goes, with its state; a consumer group, which Kafka would delete as well, is refused."""
    group = scene.group()
    consumers = f"consumers-{uuid4().hex[:8]}"
    consumer = Consumer({**to_librdkafka(scene.kafka), "group.id": consumers})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
    consumer.close()
    refused = ask("groups", "delete", group, consumers, "--execute")
    assert "[not_a_share_group]" in refused.complaint(2)
    assert scene.starts(group) == [5, 5]
    assert ask("groups", "delete", group, "--execute").code == 0
    with ShareGroupAdmin(scene.kafka) as admin:
        assert admin.describe_groups([group])[0].error_code == 69
        assert consumers in {listing.group_id for listing in admin.list_groups(("classic", "consumer"))}


@ONE_RELEASE
def test_configurations_are_set_and_unset(scene: Scene, ask: Command) -> None:
    """Shown, set, unset; a name or value that is none is refused."""
    group = scene.group()
    setting = "share.auto.offset.reset=earliest"
    wanted, show = (
        ("groups", "config", "set", "--group", group),
        partial(ask, "groups", "config", "show", group, tables=False),
    )
    assert "[changes]" in ask(*wanted, setting, tables=False).stdout
    assert show().stdout == "nothing is set on the group itself\n"
    assert ask(*wanted, setting, "--execute").code == 0
    (shown,) = show("--json").rows
    assert (shown["own"], shown["configs"]["share.auto.offset.reset"]) == (["share.auto.offset.reset"], "earliest")
    assert "[nothing_to_change]" in ask(*wanted, setting, "--execute").complaint(2)
    assert "share.auto.offset.reset" in ask(*wanted, "share.auto.offset.rest=x").stderr
    bogus = ask(*wanted, "share.auto.offset.reset=bogus", "--execute")
    assert bogus.code == 2
    assert "bogus" in bogus.stderr
    assert ask(*wanted, "--unset", "share.auto.offset.reset", "--execute").code == 0
    assert show().stdout == "nothing is set on the group itself\n"
    assert "[bad_setting]" in ask(*wanted, "no-equals-sign").complaint(2)
