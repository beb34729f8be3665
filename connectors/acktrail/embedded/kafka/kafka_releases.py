"""The Kafka releases that can run embedded, and what each needs to be resolved and formatted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from acktrail.errors import UnknownName

DEFAULT_VERSION: Final = "4.3.1"
_SHARE_GROUPS_ON: Final = ("--feature", "share.version=1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release of Kafka. `tools_version` is the release whose kafka-tools and kafka-tools-api serve this one: they
    were not published with 4.4.0, and 4.3.1's tools need 4.3.1's other jars. `log4j_version` is the log4j that Kafka
    itself asks for, `format_options` what ``StorageTool format`` needs for share groups to be on.
    """

    version: str
    tools_version: str
    log4j_version: str
    format_options: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, ...]:
        """The version as numbers, for comparison."""
        return tuple(int(part) for part in self.version.split("."))


_RELEASES: Final = (
    Release(version="4.1.2", tools_version="4.1.2", log4j_version="2.25.3", format_options=_SHARE_GROUPS_ON),
    Release(version="4.2.1", tools_version="4.2.1", log4j_version="2.25.4"),
    Release(version="4.3.1", tools_version="4.3.1", log4j_version="2.25.4"),
    Release(version="4.4.0", tools_version="4.3.1", log4j_version="2.25.5"),
)
RELEASES: Final = {release.version: release for release in _RELEASES}


def release_of(version: str) -> Release:
    """The release named `version`. Raises UnknownName with the versions that exist."""
    if version not in RELEASES:
        raise UnknownName("Kafka version", version, nearest=tuple(RELEASES))
    return RELEASES[version]
