"""What may be asked for, and the message for what may not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from change.scenes import a_request
from hypothesis import given
from hypothesis import strategies as st

from acktrail.change.request.reset_request import (
    LARGEST_OFFSET,
    ResetRequest,
    Strategy,
    StrategyKind,
    TopicScope,
    check_request,
    choose_strategy,
    parse_duration,
    parse_moment,
    parse_topic,
)
from acktrail.errors import ChangeRefused
from acktrail.plain_data import from_json_value, to_json_value
from acktrail.times import instant_text

NOW_MS = 1_700_000_000_000


def refusal(call: Any, *arguments: Any, **named: Any) -> ChangeRefused:
    with pytest.raises(ChangeRefused) as caught:
        call(*arguments, **named)
    assert caught.value.rule in caught.value.message
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("no_group", {"groups": ()}),
        ("empty_group", {"groups": ("",)}),
        ("empty_group", {"groups": ("  ",)}),
        ("bad_group", {"groups": ("\udcff",)}),
        ("bad_group", {"groups": ("x" * 40_000,)}),
        ("two_group_choices", {"all_groups": True}),
        ("no_scope", {"topics": ()}),
        ("two_scopes", {"all_topics": True}),
        ("two_scopes", {"strategy": Strategy(kind=StrategyKind.FROM_FILE, source="f")}),
        (
            "duplicate_partition",
            {"topics": (TopicScope(topic="t", partitions=(0,)), TopicScope(topic="t", partitions=(0,)))},
        ),
        ("duplicate_partition", {"topics": (TopicScope(topic="t"), TopicScope(topic="t", partitions=(0,)))}),
    ],
)
def test_parts_that_do_not_go_together_are_refused_by_name(rule: str, changes: dict[str, Any]) -> None:
    """R004-30: empty group, no scope, two scopes, something named twice: each has its rule."""
    assert refusal(check_request, a_request(**changes)).rule == rule


@pytest.mark.parametrize(
    "group", ["it's", '"q"', "a\nb", "../../etc", "é" * 127, "\u202eabc", "a b", "%s", "';drop table--", "🦆"]
)
def test_hostile_group_ids_are_group_ids(group: str) -> None:
    """Whatever Kafka takes as a group id is one."""
    assert check_request(a_request(groups=(group,))).groups == (group,)


@pytest.mark.parametrize(
    ("rule", "chosen"),
    [
        ("no_strategy", {}),
        ("two_strategies", {StrategyKind.TO_EARLIEST: None, StrategyKind.TO_LATEST: None}),
        ("negative_target", {StrategyKind.TO_OFFSET: "-1"}),
        ("negative_target", {StrategyKind.TO_OFFSET: "-9223372036854775808"}),
        ("bad_offset", {StrategyKind.TO_OFFSET: "ten"}),
        ("bad_offset", {StrategyKind.TO_OFFSET: ""}),
        ("bad_offset", {StrategyKind.TO_OFFSET: "1e3"}),
        ("bad_offset", {StrategyKind.TO_OFFSET: "٣"}),
        ("bad_offset", {StrategyKind.TO_OFFSET: str(2**63)}),
        ("bad_offset", {StrategyKind.TO_OFFSET: "1" * 400}),
        ("bad_offset", {StrategyKind.SHIFT_BY: "some"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "yesterday"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "2026-02-30T00:00:00Z"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "2026-01-01"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "2026-01-01T00:00:00+25:00"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "1969-12-31T23:59:59Z"}),
        ("bad_datetime", {StrategyKind.TO_DATETIME: "0001-01-01T00:00:00+14:00"}),
        ("timezone_missing", {StrategyKind.TO_DATETIME: "2026-01-01T00:00:00"}),
        ("timezone_missing", {StrategyKind.TO_HISTORY: "2026-01-01T00:00"}),
        ("bad_duration", {StrategyKind.BY_DURATION: "P"}),
        ("bad_duration", {StrategyKind.BY_DURATION: "PT"}),
        ("bad_duration", {StrategyKind.BY_DURATION: "-PT1H"}),
        ("bad_duration", {StrategyKind.BY_DURATION: "P1M"}),
        ("bad_duration", {StrategyKind.BY_DURATION: "P99999999999D"}),
        ("no_strategy", {StrategyKind.FROM_FILE: ""}),
    ],
)
def test_a_strategy_that_is_none_is_refused_by_name(rule: str, chosen: dict[StrategyKind, str | None]) -> None:
    """R004-30: none, two, negative, not a number, too large, no time, no time zone: each has its rule."""
    assert refusal(choose_strategy, chosen, now_ms=NOW_MS).rule == rule


@pytest.mark.parametrize("text", ["", ":0", "T1:0,x", "T1:", "T1:0,", "T1:-1", "T1:1.5", "T1:2147483648", "T1: 0"])
def test_a_scope_that_is_none_is_refused(text: str) -> None:
    """R004-30: ``T1:0,x`` and its like."""
    assert refusal(parse_topic, text).rule == "bad_scope"


def test_a_partition_named_twice_is_refused() -> None:
    """Of two entries for one partition Kafka takes the last: nobody meant that."""
    assert refusal(parse_topic, "T1:0,1,0").rule == "duplicate_partition"


def test_a_scope_is_a_topic_or_some_of_its_partitions() -> None:
    """Spelled like the JVM tool's ``--topic``."""
    assert parse_topic("T1") == TopicScope(topic="T1")
    assert parse_topic("T1:2,0") == TopicScope(topic="T1", partitions=(2, 0))


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-01-31T13:30:00.123Z", "2026-01-31T13:30:00.123Z"),
        ("2026-01-31T13:30:00,1239+02:00", "2026-01-31T11:30:00.123Z"),
        ("2026-01-31T13:30-0330", "2026-01-31T17:00:00.000Z"),
        ("2026-01-31T13:30:59+02", "2026-01-31T11:30:59.000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_a_moment_has_a_zone(text: str, utc: str) -> None:
    """R004-02: the zone counts; milliseconds are kept, what is finer is cut."""
    assert instant_text(parse_moment(text)) == utc


ZONES = st.integers(-1439, 1439).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))


@given(st.datetimes(min_value=dt.datetime(1970, 1, 3), timezones=ZONES))  # noqa: DTZ001
def test_moments_are_those_of_the_calendar(moment: dt.datetime) -> None:
    """The number of milliseconds is the one that Python's calendar gives."""
    text = moment.isoformat(timespec="microseconds")
    assert parse_moment(text) == (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT30M", 1800), ("P1DT12H", 129_600), ("PT0.5S", 0.5), ("P7D", 604_800), ("PT0S", 0)]
)
def test_a_duration_counts_back_from_now(text: str, seconds: float) -> None:
    """By-duration is a moment, fixed when the plan is made."""
    assert parse_duration(text) == seconds * 1000
    strategy = choose_strategy({StrategyKind.BY_DURATION: text}, now_ms=NOW_MS)
    assert strategy.moment_ms == NOW_MS - seconds * 1000


@given(st.integers(-LARGEST_OFFSET, LARGEST_OFFSET))
def test_numbers_are_kept(number: int) -> None:
    """Every offset and every shift survives."""
    shift = choose_strategy({StrategyKind.SHIFT_BY: str(number)}, now_ms=0)
    assert shift.number == number
    offset = choose_strategy({StrategyKind.TO_OFFSET: str(abs(number))}, now_ms=0)
    assert offset.number == abs(number)


@given(
    st.builds(
        ResetRequest,
        strategy=st.builds(Strategy, kind=st.sampled_from(StrategyKind), number=st.none() | st.integers(0, 2**63 - 1)),
        groups=st.lists(st.text(max_size=5), max_size=3).map(tuple),
        topics=st.lists(
            st.builds(TopicScope, topic=st.text(max_size=4), partitions=st.none() | st.just((0, 1))), max_size=2
        ).map(tuple),
        allow_skip=st.booleans(),
        reason=st.text(max_size=5),
    )
)
def test_a_request_is_plain_data_and_back(request: ResetRequest) -> None:
    """What goes from step to step loses nothing."""
    assert from_json_value(ResetRequest, to_json_value(request)) == request
