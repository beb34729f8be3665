"""Groups or their offsets deleted, their configurations changed: plan, facts, kinds."""
