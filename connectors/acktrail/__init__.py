"""acktrail: the trail of what every Kafka share group acknowledged."""

from typing import Final

__all__ = ["__version__"]

__version__: Final = "0.1.0"
