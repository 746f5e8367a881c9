"""Code with its tests in fresh processes: the bench, and the executors that stand on it."""

from nbrefine.executors.base import CodeExecutionResult, CodeExecutor, Tier
from nbrefine.executors.bench import Bench
from nbrefine.executors.container import ContainerCodeExecutor
from nbrefine.executors.kernel import KernelCodeExecutor
from nbrefine.executors.nursery import CandidateHost
from nbrefine.executors.runtime import ContainerConfig, ContainerWarning
from nbrefine.executors.subprocess import SubprocessCodeExecutor

__all__ = [
    "Bench",
    "CandidateHost",
    "CodeExecutionResult",
    "CodeExecutor",
    "ContainerCodeExecutor",
    "ContainerConfig",
    "ContainerWarning",
    "KernelCodeExecutor",
    "SubprocessCodeExecutor",
    "Tier",
]
