"""Which files there are, and what they are: paths, archives, URLs; opened as plain bytes, recognised by content."""
