"""A notifier of Airflow that writes what it is to send into a file, by its templates, as a chat's would."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk.bases.notifier import BaseNotifier

FILE = "ACKTRAIL_TEST_MESSAGES"
"""The variable with the file's path."""
FACTORY = "drivers.recording_notifier:notifiers"


class RecordingNotifier(BaseNotifier):
    """Adds one line of JSON to the file."""

    template_fields = ("kind", "subject", "urgency", "title", "text", "link", "run_id")

    def __init__(self) -> None:
        super().__init__()
        for name in self.template_fields:
            setattr(self, name, f"{{{{ acktrail.{name} }}}}")

    def notify(self, context: Any) -> None:
        """Write the rendered templates."""
        line = json.dumps({name: getattr(self, name) for name in self.template_fields})
        with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def notifiers() -> list[BaseNotifier]:
    """What ``ACKTRAIL_NOTIFIERS`` names."""
    return [RecordingNotifier()]


def messages(path: Path) -> list[dict[str, str]]:
    """What was sent so far, in its order."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
