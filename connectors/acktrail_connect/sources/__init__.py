"""Source connectors and their tasks: the state topic, answers of brokers, other topics, tables."""
