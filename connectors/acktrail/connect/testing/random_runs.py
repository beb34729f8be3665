"""Random runs for the suites: drawn by hypothesis where it is installed, else by a generator with a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

_MOST_GROWN: Final = 6
_MOST_POLLS: Final = 4
_MOST_RUNS: Final = 5


@dataclass(frozen=True, slots=True)
class RandomRun:
    """One run of a task: the origin grows by `grown` rows, `polls` batches are read, those before `flushed` of them are
    committed; the source hears of that unless `is_killed`. Then the process is gone."""

    grown: int
    polls: int
    flushed: int
    is_killed: bool


def for_random_runs(check: Callable[[list[RandomRun]], None], *, examples: int) -> None:
    """Call `check` with several sequences of runs."""
    if has_hypothesis():
        _by_hypothesis(check, examples)
        return
    chance = random.Random(20_260_101)  # noqa: S311  # not for secrets
    for _ in range(examples):
        check([_drawn(chance) for _ in range(chance.randint(1, _MOST_RUNS))])


def has_hypothesis() -> bool:
    """Whether the smallest failing example can be looked for."""
    return find_spec("hypothesis") is not None


def _by_hypothesis(check: Callable[[list[RandomRun]], None], examples: int) -> None:
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    polls = st.integers(0, _MOST_POLLS)
    runs = st.builds(RandomRun, st.integers(0, _MOST_GROWN), polls, polls, st.booleans())
    quiet = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
        report_multiple_bugs=False,
    )
    given(st.lists(runs, min_size=1, max_size=_MOST_RUNS))(quiet(check))()


def _drawn(chance: random.Random) -> RandomRun:
    polls = chance.randint(0, _MOST_POLLS)
    return RandomRun(chance.randint(0, _MOST_GROWN), polls, chance.randint(0, _MOST_POLLS), chance.random() < 0.5)
