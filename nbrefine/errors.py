"""The errors nbrefine raises, and whose fault each one is.

What a *model* did wrong is never here: it is a value and becomes feedback.  These are the
caller's mistakes and the host's troubles, and neither ever counts against a model::

    NbrefineError
    ├── UsageError (also ValueError)   the caller's: a wrong argument, file or setting
    │   ├── InvalidTaskError           the task itself cannot be judged as given
    │   └── RecordError                a notebook or journal cannot be read or written
    ├── KernelError                    the host's: a kernel
    │   ├── KernelStartError           it did not come up
    │   ├── KernelDeadError            it has ended, and was asked for more
    │   └── BranchRefused              a copy of it would not be a true or a safe one
    ├── ExecutorError                  the host's: the processes in which code and tests run
    ├── ModelError                     the host's: a model or the way to it
    │   ├── ModelUnavailableError      no server, no weights, no package, no such model
    │   ├── ModelAuthError             the key is missing or was refused
    │   ├── ModelLimitError            rate or quota, after all retries
    │   ├── ModelTimeoutError          no answer in time, after all retries
    │   ├── ModelRequestError          the server refuses the request as it is put
    │   ├── ModelResponseError         the answer cannot be read as the protocol says
    │   └── ModelMismatchError         a recorded model was asked what its record does not hold
    ├── BudgetExceeded                 an agreed limit was reached before a call
    └── RunStopped                     the result of a run that was stopped was asked for
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NbrefineError(Exception):
    """Any error of nbrefine.

    Parameters
    ----------
    message: what happened and what was expected, without a final full stop.
    hint: what to do next, one imperative sentence.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.episode: object | None = None
        """The `Episode` as far as it got, where one had begun."""

    def __str__(self) -> str:
        end = "" if self.message.endswith("?") else "."
        return f"{self.message}{end} {self.hint}" if self.hint else self.message


class UsageError(NbrefineError, ValueError):
    """The caller gave a wrong argument, file or setting."""


class InvalidTaskError(UsageError):
    """The task cannot be judged as given, for example because its tests do not parse."""


class RecordError(UsageError):
    """An episode notebook or journal cannot be read or written."""


class KernelError(NbrefineError):
    """A kernel of the host is in trouble."""


class KernelStartError(KernelError):
    """A kernel did not come up."""


class KernelDeadError(KernelError):
    """A kernel that has ended was asked for more."""


class BranchRefused(KernelError):
    """A copy of a live kernel would not be a true or a safe one; the kernel is unharmed.

    Parameters
    ----------
    hazards: `Hazard` values of the kinds that forbid it, or () where it cannot branch at all.
    """

    def __init__(self, message: str, *, hint: str = "", hazards: tuple[object, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.hazards = hazards


class ExecutorError(NbrefineError):
    """The processes in which code and its tests are to run are in trouble."""


class ModelError(NbrefineError):
    """A model, or the way to it, is in trouble."""


class ModelUnavailableError(ModelError):
    """There is no such model, server, package or weights file."""


class ModelAuthError(ModelError):
    """The key for a model is missing or was refused."""


class ModelLimitError(ModelError):
    """The server's rate or quota limit held through all retries."""


class ModelTimeoutError(ModelError):
    """The model did not answer in time, through all retries."""


class ModelRequestError(ModelError):
    """The server refuses the request as it is put, for example for a prompt that is too long."""


class ModelResponseError(ModelError):
    """The model's answer cannot be read as its protocol says."""


class ModelMismatchError(ModelError):
    """A recorded model was asked what its record does not hold."""


class BudgetExceeded(NbrefineError):
    """An agreed limit was reached; raised before the call that would pass it."""


class RunStopped(NbrefineError):
    """The result of a run that was stopped was asked for."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Begin a hint on a name that is not known with the one it comes near to; "" without any."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f'Did you mean "{near[0]}"? ' if near else ""
