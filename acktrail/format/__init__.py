"""State records as Kafka writes them: their bytes (wire) and their Arrow columns (columns)."""
