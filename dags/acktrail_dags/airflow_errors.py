"""What Airflow does about acktrail's errors, with advice for a person in the task's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk.exceptions import AirflowFailException

from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, QualityGateFailed, RetryableError
from acktrail_dags.parameters import in_form_words

_log: Final = logging.getLogger("acktrail.dags")

_ADVICE: Final[tuple[tuple[type[AcktrailError], str], ...]] = (
    (QualityGateFailed, "See the report, or quality_results of this run, correct the cause, clear the run."),
    (OutcomeUnknown, "Verify what happened before this task is cleared."),
    (ConfigurationError, "Correct the connection, the parameters or the ACLs, then clear this task."),
    (RetryableError, "Airflow tries again; when all tries fail, check broker and storage, then clear this task."),
    (AcktrailError, "Correct the input, then clear this task."),
)


@contextmanager
def as_airflow_errors(*, can_run_again: bool = False) -> Iterator[None]:
    """Around a task's work: a RetryableError goes to Airflow's retries, any other AcktrailError fails at once.
    `can_run_again`: the task reads from its tables what it did, so an OutcomeUnknown goes to Airflow's retries too. Any
    other exception is a defect and passes unchanged: its traceback is in the log, the task's retries apply."""
    try:
        yield
    except AcktrailError as error:
        if can_run_again and isinstance(error, OutcomeUnknown):
            _log.warning("%s. Airflow tries again and reads from the tables what landed.", error.message)
            raise
        advice = next(text for kind, text in _ADVICE if isinstance(error, kind))
        message, hint = in_form_words(error.message), in_form_words(error.hint)
        level = logging.WARNING if isinstance(error, RetryableError) else logging.ERROR
        _log.log(level, "%s. %s%s", message, f"{hint}. " if hint else "", advice)
        if isinstance(error, RetryableError):
            raise
        raise AirflowFailException(f"{message} ({hint})" if hint else message) from error
