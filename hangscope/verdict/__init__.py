"""From the matches to one verdict: how sure it is, and the evidence against it."""
