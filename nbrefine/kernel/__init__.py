"""The live kernel: start or connect, run cells, interrupt, look at variables."""
