"""Known faults of share-group state, as data: what happens, how it is injected, and exactly what must be found."""
