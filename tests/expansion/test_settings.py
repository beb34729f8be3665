"""Key mappings, ordered groups and the settle time, as the environment has them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from acktrail.errors import ConfigurationError
from acktrail_expansion.law.key_mapping import KeyMapping
from acktrail_expansion.settings import key_mappings, ordered_groups, settle_time


def test_the_first_glob_that_fits_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Given in place or in a file with comments; a topic without a mapping has none."""
    file = tmp_path / "mappings"
    file.write_text("# producers\n\norders = murmur2\n legacy-*=crc32\n*=none\n", encoding="utf-8")
    for text in ("orders=murmur2, legacy-*=crc32 ,*=none,", str(file)):
        monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", text)
        found = key_mappings()
        mapped = [found.of(topic) for topic in ("orders", "legacy-a", "legacy", "Orders")]
        assert mapped == [KeyMapping.MURMUR2, KeyMapping.CRC32, KeyMapping.NONE, KeyMapping.NONE]
    monkeypatch.delenv("ACKTRAIL_KEY_MAPPINGS")
    assert key_mappings().of("orders") is KeyMapping.NONE


@pytest.mark.parametrize("text", ["orders=murmur3", "=murmur2", "orders=murmur2,crc32", "orders=", "/no/such/file"])
def test_a_wrong_mapping_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The message has the variable and the entry."""
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", text)
    with pytest.raises(ConfigurationError, match="ACKTRAIL_KEY_MAPPINGS"):
        key_mappings()


def test_a_wrong_line_of_a_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """File, line and text; a file of bytes that are no text is refused as well."""
    file = tmp_path / "mappings"
    monkeypatch.setenv("ACKTRAIL_KEY_MAPPINGS", str(file))
    file.write_text("orders=murmur2\nbills: crc32\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="line 2: 'bills: crc32'"):
        key_mappings()
    file.write_bytes(b"\xff=murmur2")
    with pytest.raises(ConfigurationError, match="can be read"):
        key_mappings()


def test_ordered_groups_are_globs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By exact case; none unless named."""
    monkeypatch.setenv("ACKTRAIL_ORDERED_GROUPS", "billing, ship-*")
    found = ordered_groups()
    assert [group in found for group in ("billing", "ship-1", "shipping", "Billing", "")] == [True, True, *[False] * 3]
    monkeypatch.delenv("ACKTRAIL_ORDERED_GROUPS")
    assert "billing" not in ordered_groups()


@pytest.mark.parametrize(
    ("text", "seconds"), [(None, 900), ("", 900), ("90s", 90), ("24h", 86_400), ("0s", 0), ("25h", None), ("7", None)]
)
def test_the_settle_time(monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: int | None) -> None:
    """A quarter of an hour unless given, at most a day."""
    monkeypatch.delenv("ACKTRAIL_SETTLE", raising=False)
    if text is not None:
        monkeypatch.setenv("ACKTRAIL_SETTLE", text)
    if seconds is None:
        with pytest.raises(ConfigurationError, match="ACKTRAIL_SETTLE"):
            settle_time()
    else:
        assert settle_time() == dt.timedelta(seconds=seconds)
