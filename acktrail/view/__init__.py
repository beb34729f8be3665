"""What a status, a verdict, a finding, a plan, a run says: decided once, without how it looks."""
