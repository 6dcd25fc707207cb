"""One module for each command: options -> library -> exit code."""
