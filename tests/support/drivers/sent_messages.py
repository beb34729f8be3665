"""What `recording_notifier` wrote; nothing here imports Airflow."""

from __future__ import annotations

import json
from pathlib import Path

FILE = "ACKTRAIL_TEST_MESSAGES"
"""The variable with the file's path."""
FACTORY = "drivers.recording_notifier:notifiers"


def messages(path: Path) -> list[dict[str, str]]:
    """What was sent so far, in its order."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
