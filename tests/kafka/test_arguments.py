"""Arguments that no request can hold, or that mean something else to Python than to the caller, are a TypeError or a
ValueError before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.fake_kafka import FakeKafka, fake_kafka

from acktrail.errors import InputError
from acktrail.kafka.admin import ShareGroupAdmin
from acktrail.kafka.changes import ConfigsChange, NewStartOffset
from acktrail.kafka.descriptions import TopicPartition

WRONG_TYPES = st.one_of(st.none(), st.integers(), st.floats(), st.booleans(), st.binary(), st.just(object()))
SURROGATES = st.tuples(st.text(), st.integers(0xD800, 0xDFFF), st.text()).map(lambda t: t[0] + chr(t[1]) + t[2])
TOO_LONG = st.sampled_from(["g" * 32_768, "g" * 40_000, "é" * 16_384])
NAMES = st.one_of(WRONG_TYPES, SURROGATES, TOO_LONG, st.just(""))
COLLECTIONS = st.one_of(
    st.text(min_size=1), st.none(), st.integers(), st.binary(), st.lists(NAMES, min_size=1, max_size=3)
)
WHOLE = st.one_of(st.none(), st.floats(), st.booleans(), st.text(), st.integers(max_value=-1), st.just(1 << 63))
OFFSETS = st.one_of(
    COLLECTIONS,
    st.builds(NewStartOffset, topic=NAMES, partition=st.just(0), start_offset=st.just(0)).map(lambda new: [new]),
    st.builds(NewStartOffset, topic=st.just("t"), partition=WHOLE, start_offset=st.just(0)).map(lambda new: [new]),
    st.builds(NewStartOffset, topic=st.just("t"), partition=st.just(0), start_offset=WHOLE).map(lambda new: (new,)),
    st.just([NewStartOffset(topic="t", partition=0, start_offset=0)] * 2),
)
PARTITIONS = st.one_of(
    COLLECTIONS,
    st.builds(TopicPartition, topic=NAMES, partition=st.just(0)).map(lambda each: [each]),
    st.builds(TopicPartition, topic=st.just("t"), partition=WHOLE).map(lambda each: [each]),
)
CONFIGS = st.one_of(
    NAMES,
    st.builds(ConfigsChange, group_id=NAMES, configs=st.just((("a", None),))),
    st.builds(ConfigsChange, group_id=st.just("g"), configs=COLLECTIONS.map(lambda c: c)),
    st.builds(ConfigsChange, group_id=st.just("g"), configs=NAMES.map(lambda name: ((name, "x"),))),
    st.builds(ConfigsChange, group_id=st.just("g"), configs=st.one_of(SURROGATES, TOO_LONG).map(lambda v: (("a", v),))),
)


def by_group(own: st.SearchStrategy[Any], right: Any) -> st.SearchStrategy[Any]:
    """What is no mapping, has a wrong name, or something wrong for a right one."""
    keys = NAMES.filter(lambda name: type(name).__hash__ is not None)
    named = st.one_of(keys.map(lambda name: {name: right}), own.map(lambda value: {"g": right, "h": value}))
    return st.one_of(COLLECTIONS, named)


def one_wrong(*arguments: tuple[st.SearchStrategy[Any], Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Arguments of which one is wrong; each is given as what is wrong and what would be right."""
    places = range(len(arguments))
    return st.one_of(
        [
            st.tuples(*(wrong if at == place else st.just(right) for at, (wrong, right) in enumerate(arguments)))
            for place in places
        ]
    )


NAME, MANY = (NAMES, "g"), (COLLECTIONS, ["t"])
ONE_OFFSET = [NewStartOffset(topic="t", partition=0, start_offset=0)]
ONE_PARTITION = [TopicPartition(topic="t", partition=0)]
INDICES = st.one_of(st.text(min_size=1), st.none(), st.integers(), WHOLE.map(lambda number: [number]))
TYPES = st.one_of(COLLECTIONS, st.just(["shares"]))
WRONG = {
    "alter_offsets": one_wrong(NAME, (OFFSETS, ONE_OFFSET)),
    "delete_offsets": one_wrong(NAME, MANY),
    "delete_group": one_wrong(NAME),
    "alter_group_configs": one_wrong((CONFIGS, None)),
    "list_groups": one_wrong((TYPES, None)),
    "describe_group": one_wrong(NAME),
    "describe_groups": one_wrong(MANY),
    "describe_group_offsets": one_wrong(MANY),
    "committed_offsets": one_wrong(MANY),
    "describe_offsets": one_wrong(NAME, (by_group(INDICES, [0]).filter(lambda value: value is not None), None)),
    "topics": one_wrong((COLLECTIONS.filter(lambda value: value is not None), None)),
    "known_topics": one_wrong((COLLECTIONS.filter(lambda value: value is not None), None)),
    "hidden_topics": one_wrong((st.one_of(COLLECTIONS, st.just(["no id"])), None)),
    "list_offsets": one_wrong((PARTITIONS, None)),
    "offsets_at": one_wrong((PARTITIONS, ONE_PARTITION), (WHOLE, 0)),
    "group_configs": one_wrong(MANY),
    "rights": one_wrong(MANY, MANY),
    "error_of": one_wrong((WRONG_TYPES, None)),
}
WITHOUT_ARGUMENTS = {"broker_ids", "capabilities", "close", "cluster_id"}


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
    place of many, numbers that are none. The broker hears nothing of it."""
    admin, fake = asked
    before = len(fake.asked)

    @given(arguments=WRONG[name])
    def refused(arguments: tuple[Any, ...]) -> None:
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(admin, name)(*arguments)
        assert isinstance(caught.value, InputError), "the command line has a line and a hint for it"

    refused()
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
