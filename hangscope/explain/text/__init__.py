"""What text alone shows of a root, where no statement of a dump or a watchdog line does."""
