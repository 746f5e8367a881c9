"""What a notebook shows of an episode while it runs, and what stays of that."""

from __future__ import annotations

from nbrefine.views.panel.screen import Screen, screen, shows_widgets
from nbrefine.views.panel.status import sentence

__all__ = ["Screen", "screen", "sentence", "shows_widgets"]
