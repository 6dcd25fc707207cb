"""One story per cause: the picture that shows it."""
