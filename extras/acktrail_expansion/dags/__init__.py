"""The DAGs of expansions: one that expands a topic by hand, one that keeps the ledger of partitions."""
