"""Reference agents and learners; run from a checkout, not installed."""
