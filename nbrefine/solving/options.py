"""What `solve`, `resume` and `branch_off` have in common beside the work itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import getdoc
from typing import Any, TypedDict, cast

from nbrefine.budget import Budget
from nbrefine.env.approval import Approve
from nbrefine.errors import UsageError, nearest
from nbrefine.kernel import Kernel
from nbrefine.models import Model
from nbrefine.solving.settings import DEFAULTS, Settings
from nbrefine.stopping import StopRule

AnyModel = Model | str | Callable[..., Any] | Iterable[Any]

Lend = tuple[Kernel, Iterable[str]]
"""A live kernel, and the names of variables of it."""


class _Around(TypedDict, total=False):
    """The kernel, the people and the limits around an agent, which no record can keep.

    base_url: the server of an "openai:" model.
    kernel: a kernelspec's name, or a live `Kernel` to work in: one that nbrefine did not start is
        branched, and accepted cells run once in it.  By default "python3", or what was recorded.
    approve: asked in a worker thread before each cell runs; may edit it, refuse it or stop.
    confirm: asked with the reason before an attempt runs in the session itself where `isolation`
        does not say so; without it, it does in a kernel of ours, and is refused in one handed in.
    progress: called in a worker thread with a line for each turn that has ended, as `print` is.
    rules: when a subtask's attempts repeat themselves.
    budget: what may be spent; checked before every model call.
    """

    base_url: str | None
    kernel: Kernel | str | None
    approve: Approve | None
    confirm: Callable[[str], bool] | None
    progress: Callable[[str], object] | None
    rules: StopRule | None
    budget: Budget | None


class Surroundings(_Around, total=False):
    """What surrounds an agent, as it has been looked at."""

    lend: tuple[Kernel, tuple[str, ...]] | None


class Options(_Around, Settings, total=False):
    """All that `solve`, `resume` and `branch_off` take beside the work and the model.

    lend: a live kernel and the names of variables that are copied from it into one of ours, as in
        `lend=(kernel, ["df"])`.
    """

    lend: Lend | None


# `help` shows nothing of what a dict's type has from others.
Options.__doc__ = "\n\n".join(getdoc(each) or "" for each in (Options, _Around, Settings))


def parted(options: Options, *, beside: Iterable[str] = ()) -> tuple[Surroundings, Settings]:
    """Give what surrounds an agent apart from the settings that its record keeps.

    Parameters
    ----------
    beside: what else may be given, of which one may be meant by an option that is not known.

    Raises
    ------
    UsageError: an option is not known, what is to be lent is no kernel and names, or what is to be
        called cannot be.
    """
    around = Surroundings.__annotations__
    if unknown := sorted(options.keys() - around.keys() - DEFAULTS.keys()):
        known = (*DEFAULTS, *around)
        raise UsageError(
            f"There is no setting {unknown[0]!r}",
            hint=f"{nearest(unknown[0], [*known, *beside])}Use one of: {', '.join(known)}",
        )
    given: Mapping[str, Any] = options
    surroundings = {name: value for name, value in given.items() if name in around}
    if surroundings.get("lend") is not None:
        surroundings["lend"] = _lent(surroundings["lend"])
    for name in ("approve", "confirm", "progress"):
        if (called := surroundings.get(name)) is not None and not callable(called):
            raise UsageError(
                f"{name} is {called!r}, but a function is expected",
                hint="Give the function itself, such as progress=print",
            )
    settings = {name: value for name, value in given.items() if name not in around}
    return cast("Surroundings", surroundings), cast("Settings", settings)


def _lent(lend: Any) -> tuple[Kernel, tuple[str, ...]]:
    kernel, names = lend if isinstance(lend, tuple) and len(lend) == 2 else (None, None)
    names = (names,) if isinstance(names, str) else names
    given = tuple(names) if isinstance(names, Iterable) else ()
    if not isinstance(kernel, Kernel) or not given or not all(isinstance(n, str) for n in given):
        raise UsageError(
            f"lend is {lend!r}, but a live Kernel and names of its variables are expected",
            hint='Give them as lend=(kernel, ["df"])',
        )
    return kernel, given
