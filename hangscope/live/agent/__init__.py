"""What is copied to where the ranks find it: `sitecustomize.py`, and the package `hangscope_agent` that it starts."""
