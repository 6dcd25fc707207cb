"""The commands: options -> library -> exit code."""
