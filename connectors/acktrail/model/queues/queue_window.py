"""Which observations of a share partition its status is judged by."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 30 * 60 * 1_000_000
"""How long observations and counts matter, in µs."""
LEAST: Final = 3
"""Observations without which nothing is called stuck or lagging: a record may well be held for two. As many are kept
of any age: who looks once an hour sees that, too."""
LONGEST: Final = 10
"""Observations that are kept at most: of more within ``WINDOW`` the closest ones become one."""
COUNTED: Final = ("acknowledged", "released", "archived")
"""Counts of an observation."""
