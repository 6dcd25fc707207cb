"""What may be the root: the findings that the dumps allow, each found by what is stuck."""
