"""Calls into the worker from the event loop: each on a thread, with a time limit, so that one waits for no other."""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from threading import Thread
from typing import Annotated, Any, Final
from urllib.parse import unquote
from weakref import WeakValueDictionary

from fastapi import Depends, Path, Request
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.exceptions import HTTPException

from acktrail.connect.config_def import JAVA_BLANK
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


class WorkerRoute(APIRoute):
    """A route whose function is called by ``Calls.in_time``. It has the parameter `api`, and `name` where it is about a
    connector, or `new`, which has that name."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **settings: Any) -> None:
        @wraps(endpoint)
        async def answer(*, api: Calls, **given: Any) -> Any:
            call = partial(endpoint, api=api, **given)
            name = given["new"].name.strip(JAVA_BLANK) if "new" in given else given.get("name", "")
            return await api.in_time(endpoint.__name__, name, call)

        is_made_again = inspect.iscoroutinefunction(endpoint)  # where an application takes over the route
        super().__init__(path, endpoint if is_made_again else answer, **settings)


def _unquoted(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise ValueError("a name is UTF-8") from None


def _calls(request: Request) -> Calls:
    calls = request.app.state.calls
    assert isinstance(calls, Calls)
    return calls


Api = Annotated[Calls, Depends(_calls)]
Name = Annotated[
    str, Path(alias="connector", description="The connector's name, URL-encoded."), AfterValidator(_unquoted)
]
PluginName = Annotated[str, Path(alias="plugin", description="The plug-in's name."), AfterValidator(_unquoted)]
