"""Which explanation fits what was seen: the root, who it names, and what stays unexplained."""
