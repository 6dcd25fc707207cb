"""Stacks of py-spy, faulthandler, gdb and torch.distributed.debug."""
