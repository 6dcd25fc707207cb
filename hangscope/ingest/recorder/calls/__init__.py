"""From the entries of a dump to the calls of a recording."""
