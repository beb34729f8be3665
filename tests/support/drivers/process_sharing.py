"""How tests are shared out between processes."""

from __future__ import annotations

import contextlib
from typing import Any

from xdist.scheduler import LoadScopeScheduling

__all__ = ["ScopeSharing"]


class ScopeSharing(LoadScopeScheduling):
    """One process has all tests of a scope. When a process ends in the middle of a test, that test has failed, and
    those it had not begun go to others.

    ``LoadScopeScheduling`` would share out what the process had finished, too, and the failed test again: a process
    that gets nothing but finished tests says nothing more, and all wait for each other without an end.
    """

    def _reschedule(self, node: Any) -> None:
        """A process that has not collected its tests gets its share once it has."""
        if node in self.registered_collections:
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Where the process is gone already, `remove_node` is about to share out what it was to get."""
        with contextlib.suppress(OSError):
            super()._assign_work_unit(node)

    def remove_node(self, node: Any) -> str | None:
        work = self.assigned_work[node]
        begun = next((test for tests in work.values() for test, is_done in tests.items() if not is_done), None)
        if begun is None:
            return super().remove_node(node)
        work[self._split_scope(begun)][begun] = True
        del self.assigned_work[node]
        self.workqueue.update({scope: tests for scope, tests in work.items() if not all(tests.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return begun
