"""What text and stacks state about ranks: how far they came, where they were, how they ended."""
