"""What the DAGs share. Light to import: nothing here loads a Kafka client, Arrow, Spark or Great Expectations."""
