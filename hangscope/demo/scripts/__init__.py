"""Training scripts with one fault each, copied beside the evidence and run there, never imported."""
