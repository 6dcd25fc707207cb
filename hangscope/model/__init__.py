"""The nouns that all stages share: what a job left, what is concluded, and how both are written and read back."""
