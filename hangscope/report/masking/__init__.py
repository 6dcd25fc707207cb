"""What must not leave the house: secrets in quoted text, and on request hosts, paths and user names."""
