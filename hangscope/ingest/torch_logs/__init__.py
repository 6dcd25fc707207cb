"""What torch prints around a freeze, one module per format."""
