"""What launchers, the kernel and the ranks themselves print."""
