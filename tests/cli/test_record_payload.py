"""``acktrail record show --payload`` on a real broker: what a person is shown of a record, and what never leaves it."""

from __future__ import annotations

import base64
import datetime as dt
import json
import resource
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from change.world import World
from confluent_kafka import AcknowledgeType, Producer, TopicPartition
from drivers.command_line import Done, run
from servers.guarded_broker import GuardedBroker
from servers.workload import Workload, until

from acktrail.change.audit.audit_chain import AuditEntry, Event, chained
from acktrail.change.audit.plan_life import standings
from acktrail.cli.record_payload import PayloadMasks, masked
from acktrail.config import KafkaConfig, payload_masks
from acktrail.errors import ConfigurationError
from acktrail.kafka.client.client_settings import to_librdkafka
from acktrail.tables.delta.store import Tables
from acktrail_embedded.kafka.embedded_broker import EmbeddedBroker

GROUP: Final = f"payload-{uuid4().hex[:8]}"
TOPIC: Final = f"{GROUP}-orders"
CARD: Final = {"id": 7, "card": {"number": "4111-2222"}, "items": [{"iban": "IBAN-ONE"}, {"iban": "IBAN-TWO"}]}
HOSTILE: Final = "red \x1b[31m\x07\u202e text\r\nsecond"


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACKTRAIL_PAYLOADS", "allowed")
    monkeypatch.delenv("ACKTRAIL_PAYLOAD_MASKS", raising=False)


@pytest.fixture(scope="module")
def world(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> World:
    found = World.at(broker.config(), tmp_path_factory.mktemp("payload"))
    found.workload.create_topic(TOPIC, **{"max.message.bytes": "104000000", "retention.ms": "-1"})
    return found


@pytest.fixture
def place(world: World, capsys: pytest.CaptureFixture[str]) -> World:
    """Tables that know the group."""
    if not Path(world.tables.uri).exists():
        _written(world, "first")
        world.settle(GROUP, TOPIC, 1, lambda _: AcknowledgeType.ACCEPT)
        assert run(capsys, "run", "export", *world.arguments()).code == 0
        assert run(capsys, "run", "history", "--tables", world.tables.uri).code == 0
    return world


def _written(world: World, value: Any, key: Any = None, headers: Any = None, **settings: Any) -> int:
    """Write one record; return its offset."""
    places: list[int] = []
    producer = Producer({**to_librdkafka(world.kafka), "message.max.bytes": 104_000_000, **settings})

    def keep(error: Any, message: Any) -> None:
        places.append(message.offset() if error is None else error)

    producer.produce(TOPIC, value, key, 0, headers=headers, timestamp=1_000, on_delivery=keep)
    assert producer.flush(30) == 0
    return places[0]


def _show(world: World, capsys: pytest.CaptureFixture[str], offset: int, *words: str) -> Done:
    return run(capsys, "record", "show", GROUP, TOPIC, "0", str(offset), "--payload", *words, *world.arguments())


def _payload(world: World, capsys: pytest.CaptureFixture[str], offset: int, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = _show(world, capsys, offset, "--json", *words).answer["payload"]
    return found


@pytest.mark.broker
def test_each_look_is_audited_without_content(place: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Key, headers, size, time and value; the audit says who looked at which record, and stays whole."""
    offset = _written(place, json.dumps(CARD), "k1", [("trace", b"t-1"), ("null", None)])
    found = _payload(place, capsys, offset)
    assert (found["timestamp_ms"], found["has_append_time"], found["missing"]) == (1_000, False, None)
    assert (found["key"]["content"], json.loads(found["value"]["content"])) == ("k1", CARD)
    assert [(each["name"], (each["value"] or {}).get("content")) for each in found["headers"]] == [
        ("trace", "t-1"),
        ("null", None),
    ]
    rows = [(json.loads(row["detail"]), row) for row in Tables(place.tables).rows("reset_audit", {"event": "looked"})]
    ((where, row),) = [each for each in rows if each[0]["offset"] == offset]
    assert (row["group_id"], where["topic"], where["partition"], where["offset"]) == (GROUP, TOPIC, 0, offset)
    assert "4111-2222" not in str(row)
    audit = run(capsys, "change", "audit", "--tables", place.tables.uri)
    assert (audit.code, f"{TOPIC}:0, offset {offset}" in audit.stdout) == (0, True), audit
    plain = run(capsys, "record", "show", GROUP, TOPIC, "0", str(offset), "--tables", place.tables.uri, "--json")
    assert "payload" not in plain.answer
    assert len(Tables(place.tables).rows("reset_audit", {"event": "looked"})) == len(rows)


@pytest.mark.broker
def test_hostile_content_steers_no_terminal(place: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters are escapes in each form, and what is no UTF-8 is hex, or base64 for programs."""
    offset = _written(place, HOSTILE, HOSTILE, [(HOSTILE, HOSTILE.encode())])
    for form in ("auto", "text", "json", "hex"):
        for words in ((), ("--json",)):
            said = _show(place, capsys, offset, "--as", form, *words).stdout
            assert not {"\x1b", "\x07", "\u202e", "\r"} & {*said}, (form, words)
    assert "red \\x1b[31m\\x07\\u202e text\\r\\nsecond" in _show(place, capsys, offset, "--as", "text").stdout
    raw = bytes(range(256))
    offset = _written(place, raw, None)
    found = _payload(place, capsys, offset)
    assert (found["key"], found["value"]["form"]) == (None, "binary")
    assert base64.b64decode(found["value"]["content"]) == raw
    shown = _show(place, capsys, offset).stdout
    assert "key: null" in shown
    assert "0000  00 01 02" in shown
    assert "\\xff" in _show(place, capsys, offset, "--as", "text").stdout
    assert "value: null" in _show(place, capsys, _written(place, None, "k")).stdout


@pytest.mark.broker
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(place: World, capsys: pytest.CaptureFixture[str], codec: str) -> None:
    """Of each codec."""
    offset = _written(place, "x" * 10_000, **{"compression.type": codec})
    value = _payload(place, capsys, offset)["value"]
    assert (value["bytes"], value["cut_bytes"], value["content"]) == (10_000, 5_904, "x" * 4_096)
    assert "4,096 of 10,000 bytes shown" in _show(place, capsys, offset).stdout


@pytest.mark.broker
def test_masked_content_is_in_no_form(
    place: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By path, by header, the key; what cannot be masked is shown as its size only."""
    monkeypatch.setenv("ACKTRAIL_PAYLOAD_MASKS", "$.card.number, $..iban,header:auth*,key")
    offset = _written(place, json.dumps(CARD), "secret-4111-2222", [("Authorization", b"4111-2222"), ("open", b"o")])
    twice = _written(place, '{"iban": "4111-2222", "iban": "IBAN-ONE"}')
    plain = _written(place, "card 4111-2222 IBAN-ONE")
    large = _written(place, json.dumps({"pad": "x" * (1 << 20), "iban": "IBAN-ONE", "card": {"number": "4111-2222"}}))
    for form in ("auto", "text", "json", "hex"):
        for words in ((), ("--json",)):
            said = [_show(place, capsys, at, "--as", form, *words).stdout for at in (offset, twice, plain, large)]
            secrets = ("4111-2222", "IBAN-ONE", "IBAN-TWO")
            hexed = [each for text in secrets for each in (text.encode().hex(), text.encode().hex(" "))]
            encoded = (*secrets, base64.b64encode(b"card 4111-2222 IBAN-ONE").decode()[:12])
            assert [word for word in (*hexed, *encoded) for text in said if word in text.split("payload", 1)[1]] == []
            assert all("cannot be masked" in text for text in said[1:])
    value = json.loads(_payload(place, capsys, offset)["value"]["content"])
    assert value == {"id": 7, "card": {"number": "***"}, "items": [{"iban": "***"}, {"iban": "***"}]}


@pytest.mark.broker
def test_records_that_are_not_there_are_one_line(place: World, capsys: pytest.CaptureFixture[str]) -> None:
    """Aborted, a marker, not yet written, deleted; nothing is audited."""
    before = len(Tables(place.tables).rows("reset_audit"))
    offsets: list[int] = []
    producer = Producer({**to_librdkafka(place.kafka), "transactional.id": GROUP})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, "aborted", partition=0, on_delivery=lambda _, message: offsets.append(message.offset()))
    producer.flush(30)

    def line(offset: int) -> str:
        return _show(place, capsys, offset).stdout.splitlines()[-1]

    assert "a transaction is open" in line(offsets[0])
    producer.abort_transaction(30)
    marker = "payload: none, a marker of a transaction, no record"
    until(lambda: line(offsets[0] + 1) == marker, timeout_s=30, what="the marker to be written")
    assert line(offsets[0]) == "payload: none, its transaction was aborted"
    assert line(offsets[0] + 1_000) == "payload: none, the log has no such offset yet"
    for future in place.workload.admin.delete_records([TopicPartition(TOPIC, 0, 1)]).values():
        future.result(30)
    assert line(0) == "payload: none, the log does not have it any more (retention)"
    assert len(Tables(place.tables).rows("reset_audit")) == before


@pytest.mark.broker
def test_large_record_is_shown_in_bounded_memory(place: World, capsys: pytest.CaptureFixture[str]) -> None:
    """50 MB: at most six times as much beside what the process had. A batch of 100 MB is more than the client takes."""
    offset = _written(place, b"y" * 50_000_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = _payload(place, capsys, offset)["value"]
    assert (value["bytes"], value["cut_bytes"], len(value["content"])) == (50_000_000, 49_995_904, 4_096)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 6 * 50_000
    huge = _written(place, b"y" * 100_000_000)
    assert f"the batch at this offset of {TOPIC} has more than 100 MB" in _show(place, capsys, huge).complaint(2)
    many = _payload(place, capsys, _written(place, b"z", None, [("h", b"")] * 10_000))
    assert (len(many["headers"]), many["headers_left_out"]) == (100, 9_900)


@pytest.mark.broker
def test_missing_right_is_one_line(
    guarded: GuardedBroker,
    guarded_workload: Workload,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """READ on the topic; DESCRIBE is not enough."""
    login = tmp_path / "admin.properties"

    def words(config: KafkaConfig) -> tuple[str, ...]:
        login.write_text("".join(f"{name}={value}\n" for name, value in config.properties.items()))
        address = ("--bootstrap-server", config.bootstrap_servers, "--client-config", str(login))
        return (*address, "--tables", str(tmp_path / "tables"))

    assert run(capsys, "run", "export", *words(guarded.config())).code == 0
    assert run(capsys, "run", "history", "--tables", str(tmp_path / "tables")).code == 0
    guarded_workload.allow("unwelcome", "DESCRIBE", "TOPIC", "orders")
    asked = ("record", "show", "g", "orders", "0", "0", "--payload", *words(guarded.config("unwelcome")))
    wanted = "acktrail: not authorized: READ on topic orders is missing (grant READ on topic orders to this principal)"
    until(lambda: run(capsys, *asked).stderr.strip() == wanted, timeout_s=30, what="the right to be missed")
    assert run(capsys, *asked).code == 3
    assert not Tables(World.at(guarded.config(), tmp_path).tables).exists("reset_audit")


def test_look_has_no_part_in_the_status_of_changes() -> None:
    """It is about no plan, and keeps nobody from changing the group."""
    entry = AuditEntry(kind="payload", event=Event.LOOKED, plan_id="", plan_hash="", attempt=0, group_id="g")
    stamp = {"cluster_id": "c", "run_id": "r", "actor": "a", "host": "h", "audited_at": dt.datetime.now(dt.UTC)}
    assert standings(chained([entry], stamp, sequence=0, previous_hash="")) == []


def test_payloads_need_the_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, and with a word that is none, it is refused before anything is asked."""
    asked = ("record", "show", "g", "t", "0", "0", "--payload", "--tables", "/nowhere")
    monkeypatch.delenv("ACKTRAIL_PAYLOADS")
    assert "content of records may not be shown: ACKTRAIL_PAYLOADS is 'denied' (set ACKTRAIL" in run(
        capsys, *asked
    ).complaint(3)
    monkeypatch.setenv("ACKTRAIL_PAYLOADS", "yes")
    assert "ACKTRAIL_PAYLOADS is 'yes'" in run(capsys, *asked).complaint(3)


@pytest.mark.parametrize("text", ["card", "$.", "$.a b", "$[", "$..", "header", "$[-1]", "$.a['b"])
def test_wrong_mask_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelled mask must not show what it was to hide."""
    monkeypatch.setenv("ACKTRAIL_PAYLOAD_MASKS", text)
    with pytest.raises(ConfigurationError, match="which is no mask"):
        PayloadMasks.parsed(payload_masks())


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.a", {"a": "***", "b": {"a": [1, {"a": 2}]}}),
        ("$..a", {"a": "***", "b": {"a": "***"}}),
        ("$.b.a[1]", {"a": 0, "b": {"a": [1, "***"]}}),
        ("$['b'].*", {"a": 0, "b": {"a": "***"}}),
        ("$.b.a[*].a", {"a": 0, "b": {"a": [1, {"a": "***"}]}}),
        ("$.none", {"a": 0, "b": {"a": [1, {"a": 2}]}}),
    ],
)
def test_mask_by_path(path: str, expected: object) -> None:
    """Names, indices, wildcards, any depth."""
    (steps,) = PayloadMasks.parsed([path]).paths
    assert masked({"a": 0, "b": {"a": [1, {"a": 2}]}}, steps) == expected
