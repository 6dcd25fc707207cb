"""What text and stacks say, put to the ranks it belongs to."""
