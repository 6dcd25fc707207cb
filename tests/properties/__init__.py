"""What must hold of every incident, captured or simulated."""
