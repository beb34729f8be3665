"""acktrail: the trail of what every Kafka share group acknowledged."""

from typing import Final

__version__: Final = "0.1.0"
