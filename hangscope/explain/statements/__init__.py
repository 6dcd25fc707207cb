"""What text and stacks state about ranks: how far they came, where they stood, how they ended."""
