"""The bytes of Kafka's records, as pure functions. Fields are read one after the other by ``primitives.Reader``."""
