"""Signals: what tests say about an attempt."""
