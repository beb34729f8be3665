"""Great Expectations: loading it, our own expectations, evaluation."""
