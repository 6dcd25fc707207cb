"""What an analysis is written as besides its report: its table, its trace, and a brief for whoever checks the verdict."""
