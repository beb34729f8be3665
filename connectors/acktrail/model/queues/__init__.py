"""A share partition as a queue: what observations show of it, and what its status is."""
