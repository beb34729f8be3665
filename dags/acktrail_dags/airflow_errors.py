"""From acktrail's errors to what Airflow does about them, with what a person should do in the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk.exceptions import AirflowFailException

from acktrail.errors import AcktrailError, ConfigurationError, OutcomeUnknown, QualityGateFailed, RetryableError

__all__ = ["advised"]

_log: Final = logging.getLogger("acktrail.dags")

_WHAT_TO_DO: Final[tuple[tuple[type[AcktrailError], str], ...]] = (
    (
        QualityGateFailed,
        "The report was not published. Look at quality_results for this run, mend the cause, clear the run.",
    ),
    (OutcomeUnknown, "Verify what happened before this task is cleared."),
    (ConfigurationError, "Mend the connection, the parameters or the ACLs, then clear this task."),
    (RetryableError, "Airflow tries again; when all tries fail, check broker and storage, then clear this task."),
)


@contextmanager
def advised(*, can_run_again: bool = False) -> Iterator[None]:
    """Around a task's work: a RetryableError goes to Airflow's retries, any other AcktrailError fails at once.

    `can_run_again`: the task reads from its tables what it did, so that running it again tells what became of an
    unknown outcome: Airflow does. Anything else passes as it is: a defect, with its traceback in the log and the
    task's own retries.
    """
    try:
        yield
    except RetryableError as error:
        _say(error, logging.WARNING)
        raise
    except AcktrailError as error:
        if can_run_again and isinstance(error, OutcomeUnknown):
            _log.warning("%s. Airflow tries again: what landed is read from the tables.", error.message)
            raise
        _say(error, logging.ERROR)
        raise AirflowFailException(f"{error.message} ({error.hint})" if error.hint else error.message) from error


def _say(error: AcktrailError, level: int) -> None:
    advice = next(
        (text for kind, text in _WHAT_TO_DO if isinstance(error, kind)), "Mend the input, then clear this task."
    )
    _log.log(level, "%s. %s%s", error.message, f"{error.hint}. " if error.hint else "", advice)
