"""What libraries' calls imply, as data: TOML files, one per library, that a site can extend with its own."""
