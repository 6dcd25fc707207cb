"""What earlier analyses found: a store of incidents, which of them are similar, and which hosts fail most often. Opened only when asked for."""
