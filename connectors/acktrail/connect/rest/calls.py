"""Calls into the worker, each on a thread with a time limit, so that one waits for no other."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException

from acktrail.connect.runtime.worker import Worker
from acktrail.errors import AcktrailError

_LOG: Final = logging.getLogger(__name__)
_MOST: Final = 16


@dataclass(slots=True, kw_only=True)
class Calls:
    """What every handler needs. `timeout_s` is the longest that a caller waits, `worker_id` this worker's address. At
    most 16 calls of one kind about one connector run at a time, others wait for them: those that a broker holds up take
    no thread from the others."""

    worker: Worker
    worker_id: str = ""
    timeout_s: float = 90.0
    _turns: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = field(default_factory=WeakValueDictionary)

    async def in_time(self, kind: str, connector: str, function: Callable[[], Any]) -> Any:
        """What `function` gives or raises, secrets hidden. Raises HTTPException: 500 as Connect, when it takes longer
        than the limit (it runs on), or for a defect."""
        try:
            return await asyncio.wait_for(self._in_turn(kind, connector, function), self.timeout_s)
        except TimeoutError:
            raise HTTPException(500, "Request timed out") from None

    async def _in_turn(self, kind: str, connector: str, function: Callable[[], Any]) -> Any:
        turns = self._turns.setdefault((kind, connector), asyncio.Semaphore(_MOST))
        await turns.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def told(result: Any, error: Exception | None) -> None:
            turns.release()
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def run() -> None:
            outcome = self._outcome(connector, function)
            with suppress(RuntimeError):  # the interface was closed meanwhile
                loop.call_soon_threadsafe(told, *outcome)

        Thread(target=run, name="acktrail-rest-call", daemon=True).start()
        return await answer

    def _outcome(self, connector: str, function: Callable[[], Any]) -> tuple[Any, Exception | None]:
        try:
            return function(), None
        except HTTPException as error:
            return None, error
        except AcktrailError as error:
            return None, self.worker.redaction(connector).error(error)
        except Exception as error:  # noqa: BLE001  # the caller gets an answer
            _LOG.error("REST: %s", self.worker.redact_all("".join(traceback.format_exception(error))))
            return None, HTTPException(500, f"Internal error: {type(error).__name__}")
