"""The picture of the rooms shows the imports that there are."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "tools"))

import draw_rooms  # a program of the folder `tools`


def test_the_committed_picture_is_the_one_that_the_tool_draws() -> None:
    """docs/images/rooms.svg is what `tools/draw_rooms.py` makes of contracts and imports: run it after a change."""
    gone = [name for name, folder in draw_rooms.PACKAGES.items() if not (draw_rooms.ROOT / folder / name).is_dir()]
    if gone:
        pytest.skip(f"the picture also has {gone}, whose folders are gone")
    assert draw_rooms.PICTURE.read_text("utf-8") == draw_rooms.picture()


def test_every_room_and_every_arrow_is_drawn() -> None:
    """Each room is a box, each remaining arrow a path, and no arrow leads upwards."""
    arrows = draw_rooms.fewest_arrows(draw_rooms.imports_between_rooms())
    layers = draw_rooms.rows(arrows)
    row_of = {room: number for number, layer in enumerate(layers) for room in layer}
    drawn = draw_rooms.picture()

    assert row_of.keys() == arrows.keys()
    assert {"acktrail.model", "acktrail_dags", "acktrail_simulation"} <= arrows.keys()
    assert all(f">{room.removeprefix('acktrail.')}</text>" in drawn for room in arrows)
    assert drawn.count('class="arrow"') == sum(map(len, arrows.values()))
    assert all(row_of[room] < row_of[target] for room, targets in arrows.items() for target in targets)


def test_documents_show_the_pictures_that_there_are() -> None:
    """Every picture in docs/images is in a document, and every picture of a document is there."""
    root = draw_rooms.PICTURE.parents[2]
    shown = {
        (page.parent / target).resolve()
        for page in (root / "README.md", *(root / "docs").glob("*.md"))
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8"))
    }
    assert shown == set(draw_rooms.PICTURE.parent.iterdir())


def test_the_examples_of_the_tool_hold() -> None:
    """The worked example in a docstring gives what it shows."""
    assert doctest.testmod(draw_rooms).failed == 0
