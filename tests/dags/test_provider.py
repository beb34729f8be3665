"""The Airflow provider without a scheduler: its form and *Test*, triggers on one client, and what a wrong DAG says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final
from unittest.mock import patch
from uuid import uuid4

import pytest
from drivers.airflow_home import Late
from drivers.own_process import finished
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.errors import Unreachable
from acktrail.kafka import admin
from acktrail.kafka.drain_look import DrainLooks
from acktrail.model.drained import GroupLeft, Left, Wanted
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

names, hooks, operators, sensors, triggers, provider_info = (
    Late(f"acktrail_provider.{name}")
    for name in ("airflow_names", "hooks", "operators", "sensors", "triggers", "provider_info")
)
SECRET: Final = "pass-w0rd-of-the-connection"
TRIGGERS: Final = 20


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch, broker: EmbeddedBroker) -> None:
    """`there` is the shared broker, with a password that it does not ask for; nothing listens at `away`."""
    fields = {"conn_type": "acktrail_kafka", "host": broker.bootstrap_servers, "login": "ann", "password": SECRET}
    for name, values in {
        "THERE": fields,
        "AWAY": {"conn_type": "acktrail_kafka", "host": "127.0.0.1:1"},
        "EMPTY": {"conn_type": "acktrail_kafka"},
        "CROOKED": {"conn_type": "acktrail_kafka", "host": "k:1", "extra": '{"a": ["' + SECRET + '"]}'},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(values))


@contextmanager
def held(workload: Workload, records: int = 2) -> Iterator[tuple[str, str]]:
    """A group whose first acknowledgement is done, and its topic, which has a record more."""
    group, topic = f"g{uuid4()}", f"t{uuid4()}"
    workload.create_topic(topic)
    workload.produce(topic, records)
    workload.acknowledge(group, topic, records)
    workload.produce(topic, 1)
    yield group, topic


def trigger(group: str, *, conn_id: str = "there", seconds: float = 120.0, until: str = "drained") -> Any:
    wait = triggers.Wait(until=triggers.Until(until), groups=(group,))
    return triggers.ShareGroupTrigger(
        kafka_conn_id=conn_id, wait=wait.as_json(), deadline=time.time() + seconds, poll_interval=0.1
    )


async def event(of: Any) -> dict[str, str]:
    found = [each.payload async for each in of.run()]
    (payload,) = found
    return payload


def test_connection_type_has_its_form() -> None:
    """Airflow finds the provider, accepts what it says, and has the fields of the form by the names of Kafka; Airflow
    3.1 reads from the hook what the standard fields are called."""
    from airflow.providers_manager import ProvidersManager
    from jsonschema import validate

    manager = ProvidersManager()
    assert provider_info.get_provider_info().items() <= manager.providers["acktrail"].data.items()
    hook = manager.hooks["acktrail_kafka"]
    assert (hook.hook_name, hook.connection_id_attribute_name) == ("Apache Kafka share groups", "kafka_conn_id")
    has_fields = "extra__acktrail_kafka__security.protocol" in manager.connection_form_widgets
    assert has_fields or version("apache-airflow-core").startswith("3.1.")
    behaviour = manager.field_behaviours["acktrail_kafka"]
    assert behaviour["relabeling"]["host"] == "Brokers"
    schema = json.loads(files("airflow").joinpath("customized_form_field_behaviours.schema.json").read_text())
    validate(hooks.ShareGroupHook.get_ui_field_behaviour(), schema)


def test_test_of_a_connection(guarded: GuardedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What answers; else one line that says what is wrong, without the password."""
    from airflow.sdk import Connection

    fine, text = Connection.get("there").test_connection()
    assert fine, text
    assert text.startswith("Kafka 4.3, cluster ")
    asked = {"host": guarded.bootstrap_servers, "login": "admin", "password": SECRET}
    extra = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", json.dumps({"conn_type": "acktrail_kafka", **asked, "extra": extra}))
    for name, reason in (
        ("away", "127.0.0.1:1"),
        ("empty", "names no broker"),
        ("wrong", ""),
        ("crooked", "flat JSON"),
    ):
        fine, text = Connection.get(name).test_connection()
        assert not fine
        assert reason in text
        assert "\n" not in text
        assert SECRET not in text


def test_trigger_holds_no_secret_and_survives_a_restart(workload: Workload) -> None:
    """Its serialised form has names and numbers; what is made of it again looks at the same, with the time that is
    left."""
    with held(workload) as (group, _):
        path, values = trigger(group, seconds=-1).serialize()
        assert path == "acktrail_provider.triggers.ShareGroupTrigger"
        text = json.dumps(values)
        assert SECRET not in text
        assert "127.0.0.1" not in text
        again = triggers.ShareGroupTrigger(**json.loads(text))
        assert again.serialize() == (path, values)
        ended = asyncio.run(event(again))
        assert ended["status"] == "timeout"
        assert ended["reason"].startswith(f"group {group}: at most 1 offsets left in 1 of 1 share partitions: ")


def test_many_triggers_share_one_client(workload: Workload) -> None:
    """However many wait, there is one client, and a round of requests is for all of them; each fires once its group has
    drained. Afterwards client and thread are gone."""
    made: list[Any] = []
    rounds: list[int] = []

    class Counted(admin.ShareGroupAdmin):
        def __init__(self, *args: Any, **settings: Any) -> None:
            super().__init__(*args, **settings)
            made.append(self)

    class Looks(DrainLooks):
        def look(self, wanted: Any) -> Any:
            rounds.append(len(wanted))
            return super().look(wanted)

    def finish(group: str, topic: str) -> None:
        until(lambda: sum(count >= 2 for count in rounds) >= 3, what="rounds for several groups")
        workload.acknowledge(group, topic, 1)

    async def all_of(groups: Sequence[str]) -> list[dict[str, str]]:
        return await asyncio.gather(*(event(trigger(group)) for group in groups for _ in range(TRIGGERS // 2)))

    with held(workload) as one, held(workload) as other:
        with (
            patch("acktrail.kafka.admin.ShareGroupAdmin", Counted),
            patch("acktrail.kafka.drain_look.DrainLooks", Looks),
        ):
            work = [threading.Thread(target=finish, args=pair) for pair in (one, other)]
            for thread in work:
                thread.start()
            ended = asyncio.run(all_of([one[0], other[0]]))
            for thread in work:
                thread.join()
        assert [each["status"] for each in ended] == ["met"] * TRIGGERS
        assert len(made) == 1
        assert max(rounds) == 2
        until(lambda: not _threads(), what="the end of the client's thread")


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("acktrail-share-groups")]


def test_cluster_that_does_not_answer_is_waited_for() -> None:
    """Until the time is up; then the reason says so. A wrong connection ends the wait at once."""
    ended = asyncio.run(event(trigger("g", conn_id="away", seconds=0.3)))
    assert ended["status"] == "timeout"
    assert "127.0.0.1:1" in ended["reason"]
    for conn_id, reason in (("empty", "names no broker"), ("absent", "there is no Airflow connection 'absent'")):
        ended = asyncio.run(event(trigger("g", conn_id=conn_id)))
        assert ended["status"] == "error"
        assert reason in ended["reason"]


def test_new_connection_after_an_error(workload: Workload) -> None:
    """A client that broke is replaced: the next round has another one."""
    calls = iter((Unreachable("k:1"), None))

    class Breaking(DrainLooks):
        def look(self, wanted: Any) -> Any:
            if (error := next(calls, None)) is not None:
                raise error
            return super().look(wanted)

    with held(workload) as (group, topic), patch("acktrail.kafka.drain_look.DrainLooks", Breaking):
        workload.acknowledge(group, topic, 1)
        assert asyncio.run(event(trigger(group)))["status"] == "met"


HOSTILE: Final = "g\x1b[31m\n`<b>"


@pytest.mark.parametrize(
    ("make", "fields", "reason"),
    [
        (lambda: sensors.ShareGroupDrainedSensor, {"group_id": []}, "group_id"),
        (lambda: sensors.ShareGroupDrainedSensor, {"group_id": ""}, "group_id"),
        (lambda: sensors.ShareGroupDrainedSensor, {"topics": [1]}, "topics"),
        (lambda: sensors.ShareGroupLagSensor, {}, "give max_lag, max_age, or both"),
        (lambda: sensors.ShareGroupLagSensor, {"max_lag": "5"}, "max_lag '5' is not a number"),
        (lambda: sensors.ShareGroupLagSensor, {"max_age": 5}, "max_age 5 is not a timedelta"),
        (lambda: operators.ShareGroupPlanOperator, {"strategy": "to-earlyest"}, "one of to-earliest"),
        (lambda: operators.ShareGroupPlanOperator, {"strategy": "after-deletion"}, "one of to-earliest"),
        (lambda: operators.ShareGroupPlanOperator, {"strategy": "to-datetime"}, "to-datetime needs a value"),
    ],
)
def test_wrong_field_is_an_import_error_of_the_file(make: Any, fields: dict[str, Any], reason: str) -> None:
    """In one line, before anything runs."""
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        make()(**{"task_id": "t", "group_id": "g", **fields})
    assert "\n" not in str(caught.value)


def test_sensor_fails_at_its_first_look_when_no_broker_answers() -> None:
    """A wrong address looks like an outage: it does not wait for hours. The task's retries are for the latter."""
    with (
        patch("acktrail_provider.task_errors._tries_left", return_value=0),
        pytest.raises(Unreachable, match="answered"),
    ):
        sensors.ShareGroupDrainedSensor(task_id="t", group_id="g", kafka_conn_id="away").execute({})


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: sensors.ShareGroupDrainedSensor(group_id="not-there"), "unknown share group 'not-there'"),
        (lambda: sensors.ShareGroupEmptySensor(group_id=["not-there"]), "unknown share group 'not-there'"),
        (lambda: sensors.ShareGroupDrainedSensor(group_id=HOSTILE), "unknown share group"),
        (lambda: sensors.ShareGroupDrainedSensor(group_id="g", kafka_conn_id="absent"), "no Airflow connection"),
        (lambda: sensors.ShareGroupDrainedSensor(group_id="g", kafka_conn_id="empty"), "names no broker"),
        (lambda: sensors.ShareGroupDrainedSensor(group_id="g", kafka_conn_id="crooked"), "flat JSON"),
        (
            lambda: operators.ShareGroupPlanOperator(group_id="g", strategy="to-earliest"),
            "no root of tables is given (give tables_uri, or set",
        ),
        (lambda: operators.ShareGroupApplyOperator(plan="p1"), "PLAN.output"),
        (lambda: operators.ShareGroupVerifyOperator(plan={"plan_id": "p1"}), "PLAN.output"),
    ],
)
def test_what_is_wrong_fails_at_once_in_one_line(
    make: Any, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On the worker, where the person looks; nothing is waited for, no retry is used, no secret is shown."""
    for name in ("ACKTRAIL_TABLES", "ACKTRAIL_PROFILES", "ACKTRAIL_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def named(kind: Any) -> Any:
        return lambda **settings: kind(task_id="t", **{"kafka_conn_id": "there", **settings})

    kinds = {(module, name) for module in (sensors, operators) for name in dir(_module(module)) if "ShareGroup" in name}
    with pytest.MonkeyPatch.context() as patched:
        for module, name in kinds:
            patched.setattr(_module(module), name, named(getattr(_module(module), name)))
        task = make()
    with pytest.raises(names.AirflowFailException) as caught:
        task.execute({"dag_run": None})
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value) + caplog.text
    assert SECRET not in str(caught.value) + caplog.text


def _module(late: Any) -> Any:
    return import_module(object.__getattribute__(late, "_name"))


def look(at_most: int | None, oldest_s: float | None = None, members: tuple[str, ...] | None = ()) -> GroupLeft:
    return GroupLeft(Left(at_most, "why"), members, oldest_s)


@pytest.mark.parametrize(
    ("wait", "found", "is_met", "reason"),
    [
        ({"until": "drained"}, look(0), True, "why"),
        ({"until": "drained"}, look(1), False, "why"),
        ({"until": "drained"}, look(None), False, "why"),
        ({"until": "below", "max_lag": 5}, look(5), True, "why"),
        ({"until": "below", "max_lag": 5}, look(6), False, "wanted: 5 or fewer"),
        ({"until": "below", "max_lag": 5}, look(None), False, "why"),
        ({"until": "below", "max_age_s": 10}, look(6, 10.0), True, "at most 10 s old"),
        ({"until": "below", "max_age_s": 10}, look(6, 11.0), False, "wanted: 10 s or less"),
        ({"until": "below", "max_age_s": 10}, look(6), False, "grant READ"),
        ({"until": "below", "max_age_s": 10}, look(0), True, "why"),
        ({"until": "below", "max_lag": 5, "max_age_s": 10}, look(6, 1.0), False, "or fewer"),
        ({"until": "empty"}, look(None, members=()), True, "no members"),
        ({"until": "empty"}, look(None, members=("c\x1b1", "c2")), False, "has 2 members: c\\x1b1, c2"),
        ({"until": "empty"}, look(None, members=None), False, "why"),
    ],
)
def test_what_is_waited_for(wait: dict[str, Any], found: GroupLeft, is_met: bool, reason: str) -> None:
    """Not known never ends a wait; bounds are inclusive, and the age is compared by its upper bound."""
    made = triggers.Wait.of({"groups": ["g"], "topics": [], **wait})
    assert triggers.Wait.of(json.loads(json.dumps(made.as_json()))) == made
    (wanted,) = made.wanted()
    assert isinstance(wanted, Wanted)
    state = made.state({wanted: found})
    assert state.is_met == is_met
    assert reason in state.reason
    assert state.reason.startswith("group g: ")


def test_missing_kafka_client_is_named() -> None:
    """Without the extra, the sensor's module can be imported, and what is missing is named in one line."""
    probe = (
        "import sys; sys.modules['kafka'] = sys.modules['kafka.protocol'] = None\n"
        "from acktrail_provider.sensors import ShareGroupDrainedSensor as S\n"
        "try: S(task_id='t', group_id='g', kafka_conn_id='away').execute({})\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    said = finished(sys.executable, "-c", probe).stdout.strip().splitlines()[-1]
    assert said.startswith("AirflowFailException the package kafka is not installed here, of acktrail's extra 'kafka'")
