"""Agents that live in a notebook."""
