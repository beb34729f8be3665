"""What was stored about changes: audit rows in a chain, plans and outcomes, and the status that follows from them."""
