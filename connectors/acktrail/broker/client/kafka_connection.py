"""kafka-python's connections, which lose no last word."""

from __future__ import annotations

from typing import Any

from kafka.net.manager import KafkaConnectionManager

__all__ = ["ConnectionManager"]


class ConnectionManager(KafkaConnectionManager):
    """Hands over what a broker said before it closed the connection.

    kafka-python 3.0.12 drops an answer that arrives together with the end of the stream. That is how brokers refuse a
    login: they answer and close at once.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv  # noqa: SLF001

        def receive_last_words() -> tuple[bytes, Exception | None]:
            """Data first: the end of the stream is there the next time as well."""
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = receive_last_words  # noqa: SLF001
        return transport
