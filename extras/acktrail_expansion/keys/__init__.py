"""What the keys of records show of an expansion: its exact fences, and which keys a group may have got out of order."""
