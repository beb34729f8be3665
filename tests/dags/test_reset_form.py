"""The form of a reset, without a scheduler or a broker."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

FORM: dict[str, Any] = {
    "groups": ["g"],
    "strategy": "to-earliest",
    "allow": None,
    **dict.fromkeys(("topics", "reason", "kafka_conn_id")),
    **dict.fromkeys(("offset", "shift_by", "datetime", "duration", "file")),
    **dict.fromkeys(("all_topics", "allow_skip", "partial"), False),
    "dry_run": True,
    "wait_for_empty_s": 0,
    "watch_s": 0,
}


def validated(form: dict[str, Any]) -> Any:
    from acktrail_dags.change_steps import validate_reset

    run = SimpleNamespace(triggering_user_name="ann")
    return validate_reset.function(params=form, dag_run=run)["request"]


def test_messages_name_the_fields_of_the_form(tmp_path: Path) -> None:
    """By their titles, also where the rule is one of the command line's: no option of it is in a message."""
    from airflow.sdk.exceptions import AirflowFailException

    earliest = {**FORM, "tables_uri": str(tmp_path)}
    later = {"strategy": "to-history", "datetime": "2999-01-01T00:00:00Z"}
    for form, message in (
        (earliest, "Topics is empty"),
        ({**earliest, "topics": ["orders"], "all_topics": True}, "Topics does not take All topics"),
        ({**earliest, "all_topics": True, "offset": 0}, "Where to: to-earliest does not take Offset"),
        ({**earliest, "all_topics": True, "strategy": "to-offset"}, "Where to: to-offset needs Offset"),
        ({**earliest, "strategy": "from-file", "file": "f", "all_topics": True}, "from-file does not take All topics"),
        ({**earliest, "topics": ["orders:0", "orders:0"]}, "“Topics”: orders:0 is named twice"),
        ({**earliest, "all_topics": True, **later}, "“Where to: to-history” 2999-01-01T00:00:00"),
    ):
        with pytest.raises(AirflowFailException, match=re.escape(message)) as caught:
            validated(form)
        assert "--" not in str(caught.value)
