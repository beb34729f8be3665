"""Cases of Prometheus's own tool for alert rules: series over three hours, and which alerts fire at the end."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
RULES: Final = ROOT / "dashboards/prometheus/acktrail-alerts.yml"
HOURS: Final = 3
MINUTES: Final = HOURS * 60
NOW: Final = f"{MINUTES}m"
Series = Mapping[str, str]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt-get install prometheus)"
)


def every(minutes: int, *, lag: int = 0) -> str:
    """A time that is set anew every `minutes`, to what it then is less `lag` minutes; seconds since the epoch, a value
    a minute."""
    return " ".join(str(60 * max(0, minute // minutes * minutes - lag)) for minute in range(MINUTES + 1))


def always(value: float) -> str:
    return f"{value}x{MINUTES}"


def later(value: float, since: int, before: float = 0) -> str:
    """`before` until the last `since` minutes, then `value`."""
    return f"{before}x{MINUTES - since} {value}x{since - 1}" if since else always(before)


IDLE: Final[Series] = {
    'up{job="acktrail",instance="a:9464"}': always(1),
    'acktrail_task_state{connector="state",task="0",state="FAILED"}': always(0),
    'acktrail_task_state{connector="state",task="0",state="RUNNING"}': always(1),
    'acktrail_last_success_timestamp_seconds{connector="state",task="0"}': every(1),
    'acktrail_tables_read_timestamp_seconds{cluster="c"}': every(1),
    'acktrail_tables_readable{cluster="c",part="exports"}': always(1),
    'acktrail_export_timestamp_seconds{cluster="c"}': every(5),
    'acktrail_newest_state_record_timestamp_seconds{cluster="c"}': always(0),
    'acktrail_export_newest_gap_timestamp_seconds{cluster="c",reason="pruned_before_first_export"}': every(1),
    'acktrail_export_newest_gap_timestamp_seconds{cluster="c",reason="pruned"}': always(60),
    'acktrail_stored_quarantined_records{cluster="c"}': always(7),
    'acktrail_reconciliation_timestamp_seconds{cluster="c"}': every(60),
    'acktrail_validation_timestamp_seconds{cluster="c"}': every(60),
    'acktrail_critical_expectations_failed{cluster="c",suite="batches"}': always(0),
    'acktrail_open_findings{cluster="c",severity="critical"}': always(0),
    'acktrail_open_findings{cluster="c",severity="warning"}': always(3),
    'acktrail_lasting_mismatches{cluster="c"}': always(0),
    'acktrail_group_share_partitions{cluster="c",group="g",status="idle"}': always(4),
    'acktrail_group_share_partitions{cluster="c",group="h",status="ok"}': always(4),
    'acktrail_group_known_unfinished_records{cluster="c",group="g"}': always(100_000),
    'acktrail_dead_letter_topics{state="present"}': always(1),
    'acktrail_dead_letter_topics{state="missing"}': always(0),
}
"""Three hours of topics in which nothing happens; one of them has a large lag since days."""


def case(name: str, series: Series, *fires: str) -> dict[str, Any]:
    """A test of promtool's: which alerts fire at the end."""
    samples = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in fires]
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in {**IDLE, **series}.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": NOW, "exp_samples": samples}],
    }


def promtool(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    file = folder / "alerts.test.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}), "utf-8")
    return subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
