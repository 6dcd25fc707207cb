"""Flight Recorder dumps and packs: one rank's calls as compact columns."""
