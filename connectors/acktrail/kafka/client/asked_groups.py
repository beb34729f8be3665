"""How many groups a coordinator is asked about at once, and what its silence teaches about them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

MOST_AT_ONCE: Final = 100
"""Groups of a request: a busy broker mostly answers it in time."""
_IN_FLIGHT: Final = 2
"""Requests that one broker has at a time: it answers one after the other, and each waits no longer than its timeout."""
_SMALLER: Final = 10
"""A request without a response is divided by this."""
_IN_A_ROW: Final = 3
"""Silences of one coordinator without an answer between them: about a hundred groups, ten, and one."""
_SILENCES: Final = 10
"""Silences in one query: each takes as long as a request may."""


class AskedGroups:
    """The groups of one query. Where a coordinator kept silent, it is asked about fewer at a time from then on; the
    groups of that request are divided until the one that is silent alone is found. `at_once`: the most groups of a
    request."""

    def __init__(self, at_once: int = MOST_AT_ONCE) -> None:
        self._at_once = at_once
        self._silences = 0
        self._in_a_row: Counter[int] = Counter()
        self._most: dict[int, int] = {}
        self._limits: dict[str, int] = {}

    def turns(self, node: int, group_ids: Iterable[str]) -> list[list[Sequence[str]]]:
        """The groups of each request to `node`, two requests a turn. Groups that met with silence come last, and one
        request a turn: those that wait beside it in the connection end with it."""
        most = self._most.get(node, self._at_once)
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

    def keep_answer(self, node: int) -> None:
        """Remember that `node` answers."""
        self._in_a_row.pop(node, None)

    def keep_silence(self, node: int, silent: Sequence[Sequence[str]]) -> list[str]:
        """Remember that `node` did not answer in time about the groups of these requests. Gives those that were asked
        alone, and not for the first time."""
        self._silences += 1
        self._in_a_row[node] += 1
        found: list[str] = []
        for part in silent:
            limit = max(1, len(part) // _SMALLER)
            is_suspect = all(group_id in self._limits for group_id in part)
            if not is_suspect or self._in_a_row[node] > 1:
                self._most[node] = min(self._most.get(node, self._at_once), limit)
            if is_suspect and len(part) == 1:
                found += part
            self._limits |= dict.fromkeys(part, limit)
        return found

    def is_silent(self, node: int) -> bool:
        """Whether `node` is to be asked no more: it answered no request of the smallest size either, or there were too
        many silences in this query, however much was answered between them."""
        return self._in_a_row[node] >= _IN_A_ROW or self._silences >= _SILENCES


def parts(group_ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Cut into pieces of `most` groups."""
    return [group_ids[at : at + most] for at in range(0, len(group_ids), most)]
