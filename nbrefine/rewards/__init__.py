"""Signals: what tests, answers, forms and judges say about an attempt."""

from __future__ import annotations

from nbrefine.rewards.base import IOReward, RewardFunction, signals_of
from nbrefine.rewards.code import CodeExecutionReward, Tests, report_of, tests_of
from nbrefine.rewards.format import AnswerReward, FormatReward
from nbrefine.rewards.judge import (
    JUDGE_TEMPLATES,
    JudgePromptTemplate,
    JudgeReward,
    extract_judge_score,
)

__all__ = [
    "JUDGE_TEMPLATES",
    "AnswerReward",
    "CodeExecutionReward",
    "FormatReward",
    "IOReward",
    "JudgePromptTemplate",
    "JudgeReward",
    "RewardFunction",
    "Tests",
    "extract_judge_score",
    "report_of",
    "signals_of",
    "tests_of",
]
