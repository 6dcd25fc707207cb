"""The version, in a module of its own so that nothing else is imported for it."""

__version__ = "0.1.0"
