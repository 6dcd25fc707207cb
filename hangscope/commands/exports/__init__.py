"""The commands that write an analysis as something other than its report."""
