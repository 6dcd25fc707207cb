"""From the matches to one verdict: how sure, what speaks against it."""
