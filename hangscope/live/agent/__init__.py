"""What runs inside the ranks; `hangscope run` copies it to where they find it."""
