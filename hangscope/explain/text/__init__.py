"""The root causes that text alone shows, where no statement of a dump or a watchdog line does."""
