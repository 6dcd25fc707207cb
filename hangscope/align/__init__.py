"""Align the ranks: frontiers, first divergence, diffs of queues, and the wait-for graph. No I/O here."""
