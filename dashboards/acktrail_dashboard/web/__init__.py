"""The web dashboard: pages that a server renders from the aggregates in the tables; read only."""
