"""Shortcuts for dumps and entries that are like earlier ones. They are optional: what is not proved equal is loaded in full."""
