"""One look at the ranks of this node: stacks and recorders, by whatever can tell them."""
