"""What all logs share: the scan for literals, prefixes and their layers, tables of rules."""
