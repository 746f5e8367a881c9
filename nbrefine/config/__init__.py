"""Configurations as files: YAML in, checked values and built objects out."""

from __future__ import annotations

from nbrefine.config.reading import read_text
from nbrefine.config.run import RunConfig

__all__ = ["RunConfig", "read_text"]
