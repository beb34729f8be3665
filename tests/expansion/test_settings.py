"""Key mappings, ordered groups and the settle time, as the environment has them."""

from __future__ import annotations

import pytest

from acktrail.errors import ConfigurationError
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time


def test_the_first_glob_that_fits_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By exact case; a topic without a mapping has none, and no group is ordered unless it is named."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", "orders = murmur2, legacy-*=crc32 ,*=none,")
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "billing, ship-*")
    mappings, groups = key_mappings(), ordered_groups()
    mapped = [mappings.of(topic) for topic in ("orders", "legacy-a", "legacy", "Orders")]
    assert mapped == ["murmur2", "crc32", "none", "none"]
    assert [each in groups for each in ("billing", "ship-1", "shipping", "Billing", "")] == [True, True, *[False] * 3]
    monkeypatch.delenv("ACKTRAIL_ORDERED_GROUPS")
    assert "billing" not in ordered_groups()


@pytest.mark.parametrize("text", ["orders=murmur3", "=murmur2", "orders=murmur2,crc32", "orders="])
def test_a_wrong_mapping_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The message has the variable and the entry."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", text)
    with pytest.raises(ConfigurationError, match=f"ACKTRAIL_KEY_MAPPINGS: '{text.rsplit(',', maxsplit=1)[-1]}'"):
        key_mappings()


@pytest.mark.parametrize(("text", "seconds"), [("", 900), ("90s", 90), ("24h", 86_400), ("0s", 0)])
def test_the_settle_time(monkeypatch: pytest.MonkeyPatch, text: str, seconds: int) -> None:
    """A quarter of an hour unless given, at most a day."""
    monkeypatch.setenv("ACKTRAIL_SETTLE", text)
    assert settle_time().total_seconds() == seconds
    monkeypatch.setenv("ACKTRAIL_SETTLE", "25h")
    with pytest.raises(ConfigurationError, match="ACKTRAIL_SETTLE"):
        settle_time()
