"""DSEval: stateful sessions of data questions, and the judge of answers to them."""

from __future__ import annotations

from nbrefine.taskdata.dseval.judging import judge
from nbrefine.taskdata.dseval.sets import ProblemSet, Question, dseval_sets
from nbrefine.taskdata.dseval.verdicts import Judgement, Remark, Verdict

__all__ = ["Judgement", "ProblemSet", "Question", "Remark", "Verdict", "dseval_sets", "judge"]
