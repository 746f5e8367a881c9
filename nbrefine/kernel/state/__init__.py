"""What a session holds: its names, their digest, and what a cell changed."""
