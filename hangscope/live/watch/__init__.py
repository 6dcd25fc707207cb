"""A command under watch: whether it makes progress, and what is done where it does not."""
