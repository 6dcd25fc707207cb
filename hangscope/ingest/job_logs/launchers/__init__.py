"""What launchers and schedulers say of the processes that they started: how each ended, and which rank it is."""
