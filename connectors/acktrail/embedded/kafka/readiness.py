"""Is the broker ready? Ask it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from acktrail.config import KafkaConfig

__all__ = ["wait_until_ready"]

_ASK_S: Final = 0.5


def wait_until_ready(config: KafkaConfig, *, cluster_id: str, timeout_s: float, alive: Callable[[], bool]) -> str:
    """Ask for metadata until `cluster_id` answers with a registered broker. Why it is not ready, or nothing.

    An answer takes an ApiVersions exchange first, and a broker is in it only when its controller lets it serve; an
    open port means neither, and another cluster may have been faster to take the port. Gives up after `timeout_s`
    seconds or when `alive` says no.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient(
        {
            **config.properties,
            "bootstrap.servers": config.bootstrap_servers,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    deadline = time.monotonic() + timeout_s
    reason = "no broker is registered"
    while alive():
        try:
            answer = client.list_topics(timeout=_ASK_S)
            if answer.cluster_id != cluster_id:
                reason = "another cluster answers at its address"
            elif answer.brokers:
                return ""
        except KafkaException as error:
            reason = str(error.args[0].str())
        if time.monotonic() > deadline:
            return f"not ready after {timeout_s:.0f} s: {reason}"
    return "it ended"
