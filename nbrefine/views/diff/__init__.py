"""Two episodes side by side: where they part, and what differs in the runs, attempts and ends.

What is compared are settings and surroundings, code, verdicts, tests, outputs and how it ended.
What a run took, in seconds and tokens, is told and is no difference.
"""

from __future__ import annotations

from nbrefine.views.diff.compared import EpisodeDiff, Pair, Side, StepPair, diff
from nbrefine.views.diff.page import to_html, write
from nbrefine.views.diff.runs import Contrast

__all__ = ["Contrast", "EpisodeDiff", "Pair", "Side", "StepPair", "diff", "to_html", "write"]
