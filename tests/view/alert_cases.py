"""Cases of Prometheus's own tool for alert rules: series over three hours, and which alerts fire at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from drivers.own_process import finished

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "dashboards/prometheus/acktrail-alerts.yml"
MINUTES: Final = 3 * 60
NOW: Final = f"{MINUTES}m"
Series = Mapping[str, str]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


FILE: Final = yaml.safe_load(Path(__file__).with_name("alert_series.yml").read_text("utf-8"))
FIRING: Final[Mapping[str, Mapping[str, Series]]] = FILE["alerts"]
"""By alert: series that make it fire, and some that come close to that (`quiet`); beside those of idle topics."""


def values(words: str, minutes: int = MINUTES) -> str:
    """The values of a series, one a minute. ``always V``. ``later V N B``: B, by default 0, until the last N minutes,
    then V. Of times, in seconds since the epoch: ``stopped N``, N minutes before the end; ``every M L``, set anew every
    M minutes, to what it then is less L minutes, by default 0.

    >>> values("later 7 60 2")
    '2x120 7x59'
    """
    kind, first, *more = words.split()
    number, rest = int(first), [*map(int, more)]
    match kind:
        case "always":
            return f"{number}x{minutes}"
        case "later":
            since, before = rest[0], rest[1] if rest[1:] else 0
            return f"{before}x{minutes - since} {number}x{since - 1}" if since else values(f"always {before}", minutes)
        case "stopped":
            return values(f"always {60 * (minutes - number)}", minutes)
    lag = rest[0] if rest else 0
    return " ".join(str(60 * max(0, minute // number * number - lag)) for minute in range(minutes + 1))


def case(name: str, series: Series, *fires: str, minutes: int = MINUTES, within: str = "") -> dict[str, Any]:
    """A test of promtool's: which alerts fire at the end, or have fired `within` a duration before it."""
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in fires]
    firing = 'ALERTS{alertstate="firing"}'
    expression = f"count by (alertname) ({f'count_over_time({firing}[{within}])' if within else firing})"
    rows = {**FILE["idle"], **series}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values(words, minutes)} for key, words in rows.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{minutes}m", "exp_samples": samples}],
    }


def promtool(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    file = folder / "alerts.test.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}), "utf-8")
    return finished("promtool", "test", "rules", file)
