"""One story per cause: what picture tells it."""
