"""The version, for the record and the package alike."""

__version__ = "0.1.0"
