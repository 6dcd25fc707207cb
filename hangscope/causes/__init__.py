"""Name the cause: ordered rules by family, each with what it establishes and what it does not. No I/O here."""
