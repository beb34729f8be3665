"""The audit of expansions: which there were, their fences, and what groups did across them."""
