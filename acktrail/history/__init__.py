"""The tables of the delivery history, and questions to them."""
