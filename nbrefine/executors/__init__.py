"""Code with its tests in fresh processes: the bench, and the executors that stand on it."""

from nbrefine.executors.base import CodeExecutionResult, CodeExecutor, Tier

__all__ = ["CodeExecutionResult", "CodeExecutor", "Tier"]
