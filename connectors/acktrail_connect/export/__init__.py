"""Use cases that write what Kafka has to the tables: export, import, repair."""
