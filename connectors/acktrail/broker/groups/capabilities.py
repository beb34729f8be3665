"""What a cluster can be asked, from the request versions it offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from acktrail.broker.descriptions import Capabilities

__all__ = ["capabilities_of"]

_LIST_OFFSETS: Final = 2
_DESCRIBE_LOG_DIRS: Final = 35
_DELETE_GROUPS: Final = 42
_SHARE_GROUP_DESCRIBE: Final = 77
_DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90
_ALTER_SHARE_GROUP_OFFSETS: Final = 91

# The newest first: a release is the first one whose request is served in this version.
_SIGNS: Final = (
    ("4.4 or later", _DELETE_GROUPS, 3),
    ("4.3", _DESCRIBE_LOG_DIRS, 5),
    ("4.2", _LIST_OFFSETS, 11),
    ("4.1", _DESCRIBE_SHARE_GROUP_OFFSETS, 0),
    ("4.0", _SHARE_GROUP_DESCRIBE, 0),
)
_BEFORE_SHARE_GROUPS: Final = "before 4.0"


def capabilities_of(api_versions: Mapping[int, tuple[int, int]]) -> Capabilities:
    """What requests in these versions, lowest and highest by api key, allow."""

    def serves(key: int, version: int) -> bool:
        low, high = api_versions.get(key, (0, -1))
        return low <= version <= high

    return Capabilities(
        api_versions=dict(api_versions),
        release=next((name for name, key, version in _SIGNS if serves(key, version)), _BEFORE_SHARE_GROUPS),
        describes_share_groups=serves(_SHARE_GROUP_DESCRIBE, 1) and _DESCRIBE_SHARE_GROUP_OFFSETS in api_versions,
        reports_lag=serves(_DESCRIBE_SHARE_GROUP_OFFSETS, 1),
        # 4.1 answers 91 without an error and does nothing; it is the release without a lag in 90.
        resets_share_groups=serves(_ALTER_SHARE_GROUP_OFFSETS, 0) and serves(_DESCRIBE_SHARE_GROUP_OFFSETS, 1),
    )
