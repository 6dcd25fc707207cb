"""Jobs that are alive: run one under watch, capture one that is frozen, leave evidence before it ends."""
