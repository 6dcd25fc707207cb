"""Dumps as torch writes them, read entry by entry without loading them: what entries have in common as bytes."""
