"""Every file is read in a child process with limits; what comes back is plain builtins."""
