"""The commands that have a module of their own: options -> library -> exit code."""
