"""The tests, a package so that the writers of test data can be imported as `tests.<writer>`."""
