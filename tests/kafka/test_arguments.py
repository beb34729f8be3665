"""Arguments that no request can hold, or that mean something else to Python than to the caller, are a TypeError or a
ValueError before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pytest
from servers.fake_kafka import FakeKafka, fake_kafka

from acktrail.errors import InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ConfigsChange, NewStartOffset
from acktrail.kafka.descriptions import TopicPartition

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
