"""The words of nbrefine as values: task, message, reply, turn, signal, stop, episode.

Every value is frozen.  An `Episode` is the single truth about a run: histories, messages,
trajectories, the notebook and the handbook's dicts are derived from it.
"""

from __future__ import annotations

from nbrefine.files import Artifact
from nbrefine.values.episode import (
    Episode,
    GradeNote,
    Isolation,
    KernelInfo,
    Stop,
    StopReason,
    Turn,
    TurnKind,
    Verdict,
    utc_now,
)
from nbrefine.values.messages import (
    Extraction,
    Finish,
    Image,
    Message,
    Reply,
    Sampling,
    Tool,
    ToolCall,
    Usage,
)
from nbrefine.values.signals import CaseResult, RewardType, Signal, SignalBundle, TestReport
from nbrefine.values.tasks import (
    Answer,
    AnswerForm,
    Origin,
    Plan,
    Postcondition,
    Subtask,
    Task,
)

__all__ = [
    "Answer",
    "AnswerForm",
    "Artifact",
    "CaseResult",
    "Episode",
    "Extraction",
    "Finish",
    "GradeNote",
    "Image",
    "Isolation",
    "KernelInfo",
    "Message",
    "Origin",
    "Plan",
    "Postcondition",
    "Reply",
    "RewardType",
    "Sampling",
    "Signal",
    "SignalBundle",
    "Stop",
    "StopReason",
    "Subtask",
    "Task",
    "TestReport",
    "Tool",
    "ToolCall",
    "Turn",
    "TurnKind",
    "Usage",
    "Verdict",
    "utc_now",
]
