"""What holds of every dialect: of each release's, and of those that a branch adds; of other records' readers too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from acktrail.errors import MalformedRecord, UnsupportedRecord

if TYPE_CHECKING:
    from acktrail_copied_logs.dialects import Dialect

Encoded = tuple[bytes, bytes | None]


def every_cut_is_found(decode: Callable[[bytes, bytes | None], Any], encoded: Encoded) -> None:
    """A key or value cut short at any byte is a MalformedRecord that names a byte of it."""
    key, value = encoded
    for length in range(len(key)):
        with pytest.raises(MalformedRecord) as caught:
            decode(key[:length], value)
        assert (caught.value.part, 0 <= caught.value.position <= length) == ("key", True)
    for length in range(len(value or b"")):
        with pytest.raises(MalformedRecord) as caught:
            decode(key, (value or b"")[:length])
        assert (caught.value.part, 0 <= caught.value.position <= length) == ("value", True)


def a_later_version_is_named(dialect: Dialect[Any], key: bytes) -> None:
    """A value version above the known one is named, never guessed at."""
    with pytest.raises(UnsupportedRecord) as caught:
        dialect.decode(key, b"\x00\x01" + bytes(60))

    assert (caught.value.part, caught.value.number) == ("value", 1)
