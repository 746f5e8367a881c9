"""Evaluation: a model over many tasks and samples, and what came of it."""

from __future__ import annotations

from nbrefine.evaluation.results import EvaluationResult, Row, create_evaluation_result
from nbrefine.evaluation.running import (
    EvaluationRun,
    arun_evaluation,
    arun_multi_evaluation,
    run_evaluation,
    run_multi_evaluation,
)

__all__ = [
    "EvaluationResult",
    "EvaluationRun",
    "Row",
    "arun_evaluation",
    "arun_multi_evaluation",
    "create_evaluation_result",
    "run_evaluation",
    "run_multi_evaluation",
]
