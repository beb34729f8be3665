"""A change is sent once, and every part of it gets a result: done, refused, not attempted, or not known. Arguments that
no request can hold, or that mean something else to Python than to the caller, are errors before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from servers.fake_kafka import (
    ALTER,
    HANG_UP,
    SILENCE,
    FakeKafka,
    altered,
    configs_altered,
    fake_kafka,
    forgotten,
    group_deleted,
)

from acktrail.errors import (
    AcktrailError,
    ConfigurationError,
    GroupNotEmpty,
    InputError,
    NotAuthorized,
    OutcomeUnknown,
    PartlyDone,
    RetryableError,
    UnknownName,
)
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ChangeResult, ConfigsChange, ErrorScope, NewStartOffset, Outcome, raise_unless_done
from acktrail.kafka.descriptions import TopicPartition
from acktrail_embedded.kafka.embedded_broker import free_ports

TWO = [NewStartOffset(topic="T1", partition=index, start_offset=5) for index in (0, 1)]


@pytest.fixture
def fake() -> Iterator[FakeKafka]:
    """Two brokers that say what a test tells them to."""
    with fake_kafka(nodes=2) as found:
        yield found


def alter(fake: FakeKafka, *answers: Any, timeout_ms: int = 2_000) -> tuple[ChangeResult, ...]:
    """Two partitions altered, against these answers."""
    fake.answers[ALTER].extend(answers)
    with ShareGroupAdmin(fake.config(timeout_ms)) as admin:
        return admin.alter_offsets("S1", TWO)


def outcomes(results: tuple[ChangeResult, ...]) -> list[Outcome]:
    return [result.outcome for result in results]


@pytest.mark.parametrize(
    ("code", "outcome", "says", "raised"),
    [
        (30, Outcome.REFUSED, "grant READ on the group", NotAuthorized),
        (29, Outcome.REFUSED, "grant READ on the topic", NotAuthorized),
        (69, Outcome.REFUSED, "no such share group", UnknownName),
        (68, Outcome.REFUSED, "stop the group's consumers", GroupNotEmpty),
        (56, Outcome.UNKNOWN, "verify", OutcomeUnknown),
        (42, Outcome.REFUSED, "defect", InputError),
        (-1, Outcome.UNKNOWN, "verify", OutcomeUnknown),
        (24, Outcome.REFUSED, "group id", InputError),
        (35, Outcome.REFUSED, "share.version", ConfigurationError),
        (7, Outcome.UNKNOWN, "verify", OutcomeUnknown),
        (13, Outcome.UNKNOWN, "verify", OutcomeUnknown),
        (12345, Outcome.UNKNOWN, "verify", OutcomeUnknown),
    ],
)
def test_a_top_level_error_ends_the_change(
    fake: FakeKafka, code: int, outcome: Outcome, says: str, raised: type[AcktrailError]
) -> None:
    """R004-16, R004-17 and R004-21 to R004-25: sent once, one result for each partition, what to do, what is raised.

    A code without an advice leaves the outcome open."""
    results = alter(fake, altered(error_code=code, message="its words"))

    assert outcomes(results) == [outcome] * 2
    assert {(r.error_code, r.error_scope) for r in results} == {(code, ErrorScope.TOP)}
    assert all(says in r.advice and "its words" in (r.error or "") for r in results)
    assert len(fake.sent(ALTER)) == 1
    with pytest.raises(raised) as caught:
        raise_unless_done(results, operation="READ")
    assert caught.value.hint == results[0].advice


@pytest.mark.parametrize(("codes", "moves"), [([16], True), ([15], True), ([14, 14], False)])
def test_a_coordinator_that_moved_or_loads_is_told_again(fake: FakeKafka, codes: list[int], moves: bool) -> None:
    """R004-18 to R004-20: after 15 and 16 the change goes to the coordinator that is found then; after 14 it is sent
    again, and again."""
    fake.coordinators.extend([1] * moves)
    results = alter(fake, *(altered(error_code=code) for code in codes), altered([("T1", 0, 0), ("T1", 1, 0)]))

    assert outcomes(results) == [Outcome.DONE] * 2
    assert fake.nodes_asked(ALTER) == [0] * len(codes) + [int(moves)]


def test_a_coordinator_that_never_gets_ready_is_a_refusal(fake: FakeKafka) -> None:
    """When the time is over nothing was changed, and it says to run again."""
    results = alter(fake, *[altered(error_code=14) for _ in range(50)], timeout_ms=300)

    assert outcomes(results) == [Outcome.REFUSED] * 2
    with pytest.raises(RetryableError):
        raise_unless_done(results, operation="READ")


def test_no_coordinator_is_a_refusal_and_nothing_is_sent(fake: FakeKafka) -> None:
    """FindCoordinator refused: the change was never sent."""
    fake.coordinators = type(fake.coordinators)([-30])
    results = alter(fake)

    assert outcomes(results) == [Outcome.REFUSED] * 2
    assert fake.sent(ALTER) == []


@pytest.mark.parametrize("end", [SILENCE, HANG_UP])
def test_a_change_without_an_answer_is_never_sent_again(fake: FakeKafka, end: str) -> None:
    """R004-25: silence and a lost connection leave the outcome open; the request went out once."""
    results = alter(fake, end, altered([("T1", 0, 0), ("T1", 1, 0)]), timeout_ms=500)

    assert outcomes(results) == [Outcome.UNKNOWN] * 2
    assert {r.error_scope for r in results} == {ErrorScope.NO_ANSWER}
    assert len(fake.sent(ALTER)) == 1
    with pytest.raises(OutcomeUnknown):
        raise_unless_done(results, operation="READ")


def test_a_coordinator_that_is_not_there_was_told_nothing(fake: FakeKafka) -> None:
    """No connection, no change: the error says that it may be tried again."""
    fake.addresses.append(("127.0.0.1", free_ports().client))
    fake.coordinators = type(fake.coordinators)([2])
    with ShareGroupAdmin(fake.config(500)) as admin, pytest.raises(RetryableError):
        admin.alter_offsets("S1", TWO)

    assert fake.sent(ALTER) == []


def test_an_error_of_one_partition_leaves_the_others_done(fake: FakeKafka) -> None:
    """R004-17, R004-15: some done, some refused is an error of its own kind; the coordinator's codes on a partition
    came after tries and leave it open."""
    partly = alter(fake, altered([("T1", 1, 29), ("T1", 0, 0)]))
    left_open = alter(fake, altered([("T1", 0, 16), ("T1", 1, 0)]))

    assert outcomes(partly) == [Outcome.DONE, Outcome.REFUSED]
    with pytest.raises(PartlyDone, match="1 of 2"):
        raise_unless_done(partly, operation="READ")
    assert outcomes(left_open) == [Outcome.UNKNOWN, Outcome.DONE]
    with pytest.raises(OutcomeUnknown):
        raise_unless_done(left_open, operation="READ")


def test_a_lost_top_level_error_is_no_success(fake: FakeKafka) -> None:
    """R004-32: release 4.1 answers without an error and without results: nothing was attempted."""
    results = alter(fake, altered())

    assert outcomes(results) == [Outcome.NOT_ATTEMPTED] * 2
    with pytest.raises(OutcomeUnknown):
        raise_unless_done(results, operation="READ")


def test_deletions_and_configs_have_results_as_well(fake: FakeKafka) -> None:
    """Calls 92, 42 and 44: each part, refusals with what to do, silence left open."""
    fake.answers[92].extend([forgotten([("T1", 0), ("T2", 3)]), forgotten(error_code=68), SILENCE])
    fake.answers[42].extend([group_deleted("S1", 0), group_deleted("S1", 30), group_deleted("other", 0), HANG_UP])
    fake.answers[44].extend([configs_altered("S1", 0), configs_altered("S1", 40), SILENCE])
    with ShareGroupAdmin(fake.config(500)) as admin:
        some, none, lost = (admin.delete_offsets("S1", ["T1", "T2", "T3"]) for _ in range(3))
        deleted = [admin.delete_group("S1") for _ in range(4)]
        change = ConfigsChange(group_id="S1", configs=(("share.auto.offset.reset", "earliest"), ("x", None)))
        altered_configs = [admin.alter_group_configs(change) for _ in range(3)]

    assert outcomes(some) == [Outcome.DONE, Outcome.REFUSED, Outcome.NOT_ATTEMPTED]
    assert outcomes(none) == [Outcome.REFUSED] * 3
    assert outcomes(lost) == [Outcome.UNKNOWN] * 3
    assert [r.outcome for r in deleted] == [Outcome.DONE, Outcome.REFUSED, Outcome.NOT_ATTEMPTED, Outcome.UNKNOWN]
    assert "grant DELETE" in deleted[1].advice
    assert [r.outcome for r in altered_configs] == [Outcome.DONE, Outcome.REFUSED, Outcome.UNKNOWN]
    operations = [(e.name, e.config_operation, e.value) for e in fake.sent(44)[0].resources[0].configs]
    assert operations == [("share.auto.offset.reset", 0, "earliest"), ("x", 1, None)]


ONE: Final = TopicPartition(topic="t", partition=0)
NEW: Final = NewStartOffset(topic="t", partition=0, start_offset=0)
NO_TEXTS: Final = ["\ud800", "g\udfff", "g" * 32_768, "é" * 16_384]
NAMES: Final = [None, 7, 1.5, True, b"g", "", *NO_TEXTS]
MANY: Final = ["text", None, 7, b"t", *([name] for name in NAMES)]
NUMBERS: Final = [None, 1.5, True, "1", -1, 1 << 63]
OFFSETS: Final = [
    *MANY,
    *([NewStartOffset(topic=name, partition=0, start_offset=0)] for name in NAMES),  # type: ignore[arg-type]  # wrong
    *([NewStartOffset(topic="t", partition=number, start_offset=0)] for number in NUMBERS),  # type: ignore[arg-type]
    *((NewStartOffset(topic="t", partition=0, start_offset=number),) for number in NUMBERS),  # type: ignore[arg-type]
    [NEW, NEW],
]
PARTITIONS: Final = [
    *MANY,
    *([TopicPartition(topic=name, partition=0)] for name in NAMES),  # type: ignore[arg-type]  # wrong on purpose
    *([TopicPartition(topic="t", partition=number)] for number in NUMBERS),  # type: ignore[arg-type]
]
CONFIGS: Final = [
    *NAMES,
    *(ConfigsChange(group_id=name, configs=(("a", None),)) for name in NAMES),  # type: ignore[arg-type]  # wrong
    *(ConfigsChange(group_id="g", configs=pairs) for pairs in MANY),  # type: ignore[arg-type]
    *(ConfigsChange(group_id="g", configs=((name, "x"),)) for name in NAMES),  # type: ignore[arg-type]
    *(ConfigsChange(group_id="g", configs=(("a", text),)) for text in NO_TEXTS),
]
BY_TOPIC: Final = ["text", 7, b"t", *({name: [0]} for name in NAMES), *({"t": each} for each in ("0", None, 0))]
BY_TOPIC += [{"t": [number]} for number in NUMBERS]


def each(wrong: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [(value,) for value in wrong]


NAME, COLLECTION = each(NAMES), each(MANY)
WRONG: Final[dict[str, list[tuple[Any, ...]]]] = {
    "alter_offsets": [*((name, [NEW]) for name in NAMES), *(("g", offsets) for offsets in OFFSETS)],
    "delete_offsets": [*((name, ["t"]) for name in NAMES), *(("g", topics) for topics in MANY)],
    "delete_group": NAME,
    "alter_group_configs": each(CONFIGS),
    "list_groups": [*COLLECTION, (["shares"],)],
    "describe_group": NAME,
    "describe_groups": COLLECTION,
    "describe_group_offsets": COLLECTION,
    "committed_offsets": COLLECTION,
    "describe_offsets": [*((name, {"t": [0]}) for name in NAMES), *(("g", topics) for topics in BY_TOPIC)],
    "topics": [given for given in COLLECTION if given != (None,)],
    "known_topics": [given for given in COLLECTION if given != (None,)],
    "hidden_topics": [*COLLECTION, (["no id"],)],
    "list_offsets": each(PARTITIONS),
    "offsets_at": [*((partitions, 0) for partitions in PARTITIONS), *(([ONE], number) for number in NUMBERS)],
    "group_configs": COLLECTION,
    "rights": [*((groups, ["t"]) for groups in MANY), *((["g"], topics) for topics in MANY)],
    "error_of": each([None, 7, "text", object()]),
}
WITHOUT_ARGUMENTS: Final = {"broker_ids", "capabilities", "close", "cluster_id"}


@pytest.fixture(scope="module")
def asked() -> Iterator[tuple[ShareGroupAdmin, FakeKafka]]:
    with fake_kafka() as fake, ShareGroupAdmin(fake.config(500)) as admin:
        yield admin, fake


def test_only_what_is_documented_is_public() -> None:
    """No way of sending a request, nor what the client knows of the cluster, is among the names of the admin client."""
    public = {name for name, _ in inspect.getmembers(ShareGroupAdmin) if not name.startswith("_")}
    assert public == WRONG.keys() | WITHOUT_ARGUMENTS


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    asked: tuple[ShareGroupAdmin, FakeKafka], name: str
) -> None:
    """Whatever is wrong: a lone surrogate, None, no text, more bytes than a string of Kafka's protocol has, one str in
    place of many, numbers that are none. The broker hears nothing of it; the command line has a line and a hint."""
    admin, fake = asked
    before = len(fake.asked)
    for arguments in WRONG[name]:
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(admin, name)(*arguments)
        assert isinstance(caught.value, InputError), arguments
    assert fake.asked[before:] == []


@pytest.mark.parametrize(
    "ask", [lambda admin: admin.list_groups(), lambda admin: admin.delete_group("g"), lambda admin: admin.topics()]
)
def test_a_closed_client_says_so(ask: Callable[[ShareGroupAdmin], Any]) -> None:
    with fake_kafka() as fake:
        admin = ShareGroupAdmin(fake.config())
        admin.close()
        with pytest.raises(ValueError, match="closed"):
            ask(admin)


def test_nothing_asked_for_is_nothing_sent(asked: tuple[ShareGroupAdmin, FakeKafka]) -> None:
    """No groups, no topics and no partitions are an answer without a question."""
    admin, fake = asked
    before = len(fake.asked)
    assert admin.alter_offsets("g", []) == admin.delete_offsets("g", []) == admin.describe_groups([]) == ()
    assert admin.topics([]) == admin.list_offsets([]) == ()
    assert fake.asked[before:] == []
