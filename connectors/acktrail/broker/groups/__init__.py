"""Share groups at the broker: requests, responses, changes, and what one observation says of all of them."""
