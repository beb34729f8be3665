"""How many groups a coordinator is asked about at once, and what its silence teaches about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

_MOST: Final = 100
"""Groups of a request: a busy broker mostly answers it in time."""
_IN_FLIGHT: Final = 2
"""Requests that one broker has at a time: it answers one after the other, and each waits no longer than its timeout."""
_SMALLER: Final = 10
"""A request without a response is divided by this."""


class AskedGroups:
    """The groups of one query. Where a coordinator kept silent, it is asked about fewer at a time from then on; the
    groups of that request are divided until the one that is silent alone is found."""

    def __init__(self) -> None:
        self.silences = 0
        """Requests without a response in time."""
        self._most: dict[int, int] = {}
        self._limits: dict[str, int] = {}

    def turns(self, node: int, group_ids: Iterable[str]) -> list[list[Sequence[str]]]:
        """The groups of each request to `node`, two requests a turn. Groups that met with silence come last, and one
        request a turn: those that wait beside it in the connection end with it."""
        most = self._most.get(node, _MOST)
        fresh: list[str] = []
        suspects: dict[int, list[str]] = defaultdict(list)
        for group_id in group_ids:
            limit = self._limits.get(group_id)
            (fresh if limit is None else suspects[limit]).append(group_id)
        whole = parts(fresh, most)
        turns = [list(whole[at : at + _IN_FLIGHT]) for at in range(0, len(whole), _IN_FLIGHT)]
        for limit, groups in sorted(suspects.items(), reverse=True):
            turns += [[part] for part in parts(groups, min(limit, most))]
        return turns

    def keep_silence(self, node: int, part: Sequence[str]) -> bool:
        """Remember that `node` did not answer about `part` in time. True: it was one group, for the second time."""
        self.silences += 1
        is_second = all(group_id in self._limits for group_id in part)
        limit = max(1, len(part) // _SMALLER)
        self._limits |= dict.fromkeys(part, limit)
        if not is_second:
            self._most[node] = min(self._most.get(node, _MOST), limit)
        return is_second and len(part) == 1


def parts(group_ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Cut into pieces of `most` groups."""
    return [group_ids[at : at + most] for at in range(0, len(group_ids), most)]
