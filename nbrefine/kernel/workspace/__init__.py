"""The working folder: what a branch does to it, and how that is committed."""
