"""How ranks and jobs ended: deaths, quiet leaves, silence, ends from outside."""
