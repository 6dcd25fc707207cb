"""Tests of what is said, and how surely."""
