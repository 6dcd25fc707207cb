"""What earlier analyses found: a store of incidents, which of them are alike, and which hosts stand out. Opened only when asked for."""
