"""A FastAPI or ASGI app on a free port of this machine, in a thread of the tests."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import uvicorn

__all__ = ["web_server"]


@contextmanager
def web_server(app: Any) -> Iterator[str]:
    """The address, ending in a slash, while the app is served."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    settings = uvicorn.Config(
        app, loop="asyncio", http="h11", ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(settings)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
