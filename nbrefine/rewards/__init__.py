"""Signals: what tests, graders and judges say about an attempt."""
