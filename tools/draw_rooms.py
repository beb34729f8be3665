"""Draw the rooms and their arrows: ``tools/draw_rooms.py`` writes docs/images/rooms.svg.

Rooms and their rows come from the layers in pyproject.toml, arrows from the imports of the sources. An arrow is left
out where a longer way leads to the same room: a room may import all that its arrows lead to. Loose modules (errors,
configuration, times) are left out: every room may import them. The same sources always give the same picture.
"""

from __future__ import annotations

import ast
import itertools
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PICTURE: Final = ROOT / "docs/images/rooms.svg"
PACKAGES: Final = {
    "acktrail": ".",
    "acktrail_connect": "connectors",
    "acktrail_jobs": "spark_jobs",
    "acktrail_expectations": "expectations",
    "acktrail_dashboard": "dashboards",
    "acktrail_dags": "dags",
    "acktrail_provider": "dags",
    "acktrail_simulation": "simulation",
    "acktrail_copied_logs": "extras",
    "acktrail_demo": "extras",
    "acktrail_embedded": "extras",
    "acktrail_expansion": "extras",
    "acktrail_mcp": "extras",
    "acktrail_migration": "extras",
    "acktrail_redrive": "extras",
}
"""Package to the folder that is its source root."""
ABOUT: Final = {
    "acktrail.cli": "the command acktrail",
    "acktrail.change": "plan, approve, apply, undo",
    "acktrail.group_changes": "deletions, configurations",
    "acktrail.history": "runs, states, changes",
    "acktrail.view": "what is said of a run",
    "acktrail.kafka": "clients, topics, admin",
    "acktrail.tables": "Delta: commit, read, upkeep",
    "acktrail.serving": "HTTP servers",
    "acktrail.replay": "records to states",
    "acktrail.format": "bytes to columns",
    "acktrail.model": "what a state is",
    "acktrail_dags": "Airflow runs it",
    "acktrail_provider": "for DAGs of others",
    "acktrail_connect": "from Kafka to tables",
    "acktrail_jobs": "Spark works on it",
    "acktrail_expectations": "Great Expectations checks",
    "acktrail_dashboard": "pages and the report",
    "acktrail_simulation": "a broker's inside, modelled",
    "acktrail_embedded": "extra: broker, Airflow to try",
    "acktrail_demo": "extra: try it, faults",
    "acktrail_copied_logs": "extra: files, old formats",
    "acktrail_expansion": "extra: more partitions",
    "acktrail_mcp": "extra: questions of agents",
    "acktrail_migration": "extra: to another cluster",
    "acktrail_redrive": "extra: records put back",
}
"""What each room is for, in a few words."""
_BRANCHES: Final = frozenset(room for room, words in ABOUT.items() if words.startswith("extra"))

_BOX_WIDTH: Final = 190
_BOX_HEIGHT: Final = 44
_GAP: Final = 24
_LANE: Final = 26
_ROW_HEIGHT: Final = 84
_MARGIN: Final = 20
_SWEEPS: Final = 8
_STYLE: Final = (
    "text{font:14px sans-serif;text-anchor:middle;fill:#1d2429}.about{font-size:12px;fill:#4b5660}"
    ".page{fill:#fff}.inner{fill:#eaf2f8;stroke:#4a7ba6}.package{fill:#fdf3e3;stroke:#b5833a}"
    ".branch{fill:#eef6ec;stroke:#5d8a54}"
    ".arrow{fill:none;stroke:#5b6770;stroke-width:1.3}"
)
_ARROW_TIP: Final = (
    '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#5b6770"/></marker>'
)

Arrows = Mapping[str, frozenset[str]]
"""Room to the rooms that it imports."""


def main() -> int:
    """Write the picture; 1 when there was another one."""
    before = PICTURE.read_text("utf-8") if PICTURE.exists() else ""
    drawn = picture()
    PICTURE.write_text(drawn, "utf-8")
    return int(drawn != before)


def picture() -> str:
    """The drawing as SVG text."""
    arrows = fewest_arrows(imports_between_rooms())
    layers = rows(arrows)
    ways = _ways(arrows, layers)
    places = _places(_ordered(ways, layers))
    width = max(x for x, _ in places.values()) + _BOX_WIDTH // 2 + _MARGIN
    height = len(layers) * _ROW_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        "<title>Rooms of acktrail; an arrow means: imports</title>",
        f"<style>{_STYLE}</style>",
        f"<defs>{_ARROW_TIP}</defs>",
        '<rect class="page" width="100%" height="100%"/>',
        *(_curve([places[stop] for stop in way]) for way in ways),
        *(_box(room, *places[room]) for layer in layers for room in layer),
        "</svg>",
    ]
    return "\n".join([*lines, ""])


def rows(arrows: Arrows) -> list[list[str]]:
    """Rooms by the layers of pyproject.toml, upper ones first; a room of no layer stands above its
    imports."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layered = [found for found in contracts if found["type"] == "layers" and "containers" not in found]
    inside, between = ([_names(layer) for layer in found["layers"]] for found in layered)
    layers = [*(layer for layer in between if layer != ["acktrail"]), *inside]
    placed = [[room for room in layer if room in arrows] for layer in layers]
    known = {room for layer in placed for room in layer}
    for room in (room for room in TopologicalSorter(arrows).static_order() if room not in known):
        highest = min((index for index, layer in enumerate(placed) if arrows[room] & set(layer)), default=len(placed))
        if not highest:
            placed.insert(0, [])
        placed[max(0, highest - 1)].append(room)
    return [row for row in placed if row]


def _names(layer: str) -> list[str]:
    return sorted(name.strip() for name in layer.split("|"))


def imports_between_rooms() -> Arrows:
    """Every import of one room by another, at module level or inside functions."""
    found: dict[str, set[str]] = {}
    for package, folder in PACKAGES.items():
        for file in sorted((ROOT / folder / package).rglob("*.py")):
            module = ".".join(file.relative_to(ROOT / folder).with_suffix("").parts)
            room = _room(module)
            if room is not None:
                targets = (_room(name) for name in _imported(file))
                found.setdefault(room, set()).update(target for target in targets if target not in (None, room))
    return {room: frozenset(targets) for room, targets in found.items()}


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _room(module: str) -> str | None:
    """The room of a module: a package, or a subpackage of acktrail; None for others and for loose modules."""
    package, *inner = module.split(".")
    if package not in PACKAGES:
        return None
    if package != "acktrail":
        return package
    is_room = bool(inner) and (ROOT / "acktrail" / inner[0] / "__init__.py").is_file()
    return f"acktrail.{inner[0]}" if is_room else None


def fewest_arrows(arrows: Arrows) -> Arrows:
    """Without the arrows that a longer way replaces (the transitive reduction; there are no circles).

    >>> wire, model = frozenset({"wire"}), frozenset({"model"})
    >>> fewest = fewest_arrows({"cli": wire | model, "wire": model, "model": frozenset()})
    >>> {room: sorted(targets) for room, targets in fewest.items()}
    {'cli': ['wire'], 'wire': ['model'], 'model': []}
    """
    below: dict[str, frozenset[str]] = {}

    def all_below(room: str) -> frozenset[str]:
        if room not in below:
            targets = arrows.get(room, frozenset())
            below[room] = targets.union(*(all_below(target) for target in targets))
        return below[room]

    return {
        room: frozenset(target for target in targets if not any(target in all_below(other) for other in targets))
        for room, targets in arrows.items()
    }


Stop = str | tuple[str, str, int]
"""A room, or a point of an arrow (from, to) in a row between them."""


def _ways(arrows: Arrows, layers: Sequence[Sequence[str]]) -> list[list[Stop]]:
    """Each arrow as its stops, one in each row from its first to its last."""
    row_of = {room: number for number, layer in enumerate(layers) for room in layer}
    return [
        [room, *((room, target, row) for row in range(row_of[room] + 1, row_of[target])), target]
        for room in sorted(arrows)
        for target in sorted(arrows[room])
    ]


def _ordered(ways: Sequence[Sequence[Stop]], layers: Sequence[Sequence[str]]) -> list[list[Stop]]:
    """The stops of each row from left to right: each near the middle of its neighbours, so that few arrows cross."""
    order: list[list[Stop]] = [list(layer) for layer in layers]
    neighbours: dict[Stop, list[Stop]] = defaultdict(list)
    for way in ways:
        for stop in way[1:-1]:
            order[int(stop[2])].append(stop)
        for upper, lower in itertools.pairwise(way):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    for _ in range(_SWEEPS):
        for row in (*order, *reversed(order)):
            middle = {stop: x for layer in order for stop, x in _spread(layer).items()}
            row.sort(key=lambda stop: (_mean([middle[other] for other in neighbours[stop]]), str(stop)))
    return order


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


def _spread(row: Sequence[Stop]) -> dict[Stop, float]:
    """Distance of each stop of a row from the row's middle."""
    widths = [_BOX_WIDTH + _GAP if isinstance(stop, str) else _LANE for stop in row]
    ends = [sum(widths[:number]) for number in range(len(row))]
    return {stop: end + width / 2 - sum(widths) / 2 for stop, end, width in zip(row, ends, widths, strict=True)}


def _places(order: Sequence[Sequence[Stop]]) -> dict[Stop, tuple[int, int]]:
    """Middle of each stop, in pixels."""
    spread = [_spread(row) for row in order]
    left = min(min(row.values()) for row in spread) - _BOX_WIDTH / 2 - _MARGIN
    return {
        stop: (round(x - left), number * _ROW_HEIGHT + _ROW_HEIGHT // 2)
        for number, row in enumerate(spread)
        for stop, x in row.items()
    }


def _curve(stops: Sequence[tuple[int, int]]) -> str:
    """From the bottom of the first box to the top of the last, straight through the rows between them."""
    half = _BOX_HEIGHT // 2
    points = [(stops[0][0], stops[0][1] + half)]
    for x, y in stops[1:-1]:
        points += [(x, y - half), (x, y + half)]
    points.append((stops[-1][0], stops[-1][1] - half))
    path = f"M{points[0][0]},{points[0][1]}"
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        middle = (y + to_y) // 2
        path += f" C{x},{middle} {to_x},{middle} {to_x},{to_y}"
    return f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>'


def _box(room: str, x: int, y: int) -> str:
    kind = "branch" if room in _BRANCHES else "inner" if "." in room else "package"
    corner = f'x="{x - _BOX_WIDTH // 2}" y="{y - _BOX_HEIGHT // 2}"'
    return (
        f'<rect class="{kind}" {corner} width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6"/>'
        f'<text x="{x}" y="{y - 3}">{room.removeprefix("acktrail.")}</text>'
        f'<text class="about" x="{x}" y="{y + 14}">{ABOUT[room]}</text>'
    )


if __name__ == "__main__":
    sys.exit(main())
