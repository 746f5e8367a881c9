"""What differs in the runs themselves: what they began with, how they ended, what they took."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nbrefine.notebook import steps
from nbrefine.rerun.versions import imported, module
from nbrefine.values import Episode, KernelInfo, Turn
from nbrefine.views.diff.aligning import merged
from nbrefine.views.diff.changes import changes
from nbrefine.views.diff.likeness import texts_alike

HIDDEN = "not shown here"
"""What stands for tests and solutions that are kept from readers."""

SHORT = 100
"""Characters up to which a text stands in a table."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """One thing that is other in A than in B."""

    what: str
    """Such as "Model" or "Package pandas"."""
    a: str
    """What it is in A; "" where A has none."""
    b: str

    @property
    def long(self) -> bool:
        """Whether it is a text that one reads as changes."""
        return any("\n" in each.strip() or len(each) > SHORT for each in (self.a, self.b))

    @property
    def changes(self) -> str:
        """The unified diff from A's text to B's."""
        return changes(self.a, self.b)


def before(a: Episode, b: Episode) -> Iterator[Contrast]:
    """Give what differs before the first reply.

    The packages come last, as they may be many, and of them first those that cells import.
    """
    same = _same_prompts(a, b)
    used = imported([turn.code for episode in (a, b) for turn in episode.turns])
    return _differing(
        {**_began(a), **same, **_packages(a, used)}, {**_began(b), **same, **_packages(b, used)}
    )


def ends(a: Episode, b: Episode) -> Iterator[Contrast]:
    """Give what differs at the end."""
    return _differing(_ended(a), _ended(b))


def costs(a: Episode, b: Episode) -> Iterator[Contrast]:
    """Give what differs in what they took."""
    return _differing(_took(a), _took(b))


def _differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Contrast]:
    for what in merged(list(ours), list(theirs)):
        one, other = ours.get(what, ""), theirs.get(what, "")
        if one != other:
            yield Contrast(what, *(_veiled(one, other) if what in _VEILED else (one, other)))


_VEILED = ("Hidden tests", "Reference solution")


def _veiled(one: str, other: str) -> tuple[str, str]:
    """Tell two texts apart without giving them away."""
    return (
        f"one, {HIDDEN}" if one else "",
        f"{'another' if one else 'one'}, {HIDDEN}" if other else "",
    )


def _began(episode: Episode) -> dict[str, str]:
    task, kernel = episode.task, episode.kernel
    known = kernel != KernelInfo()
    form, implementation = task.answer, f"{kernel.implementation} {kernel.implementation_version}"
    return {
        "Task": task.prompt.strip(),
        "Setup": task.setup.strip(),
        "Data": ", ".join(task.files),
        "Tests": task.tests.strip(),
        "Hidden tests": task.hidden_tests,
        "Reference solution": task.reference,
        "Answer's form": (form.told or form.kind) if form is not None else "",
        "Plan of the task": "\n".join(steps.goals(episode.plans[0]))
        if episode.plans and episode.plans[0].origin == "task"
        else "",
        "Model": episode.model,
        **_prompt(episode),
        **_flat(episode.settings),
        "Seed": "none" if episode.seed is None else str(episode.seed),
        "nbrefine": episode.version,
        "Variables at the start": ", ".join(episode.handed_in or ()),
        "Kernel": kernel.name,
        "Language": f"{kernel.language} {kernel.language_version}".strip() if known else "",
        "Kernel's implementation": implementation.strip(),
        "Platform": kernel.platform,
    }


def _packages(episode: Episode, used: Collection[str]) -> dict[str, str]:
    found = episode.kernel.packages
    first = sorted(found, key=lambda name: (module(name) not in used, name))
    return {f"Package {name}": found[name] for name in first}


def _same_prompts(a: Episode, b: Episode) -> dict[str, str]:
    """Give those first prompts that say the same but for the clock, paths and the like."""
    ours, theirs = _prompt(a), _prompt(b)
    of = next(_asked(a), None), next(_asked(b), None)
    return {
        name: ""
        for name in ours.keys() & theirs.keys()
        if of[0] is not None and of[1] is not None
        if texts_alike(ours[name], theirs[name], (of[0], of[1]))
    }


def _asked(episode: Episode) -> Iterator[Turn]:
    return (turn for turn in episode.turns if turn.messages)


def _prompt(episode: Episode) -> dict[str, str]:
    """Give the first prompt, whose words are the template's; what it says of the task is there."""
    first = next(_asked(episode), None)
    told: dict[str, str] = {}
    for message in first.messages if first is not None else ():
        name = f"First prompt ({message.role})"
        told[name] = "\n\n".join(filter(None, (told.get(name, ""), message.content)))
    return told


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Give nested settings by their dotted names."""
    found: dict[str, str] = {}
    for name, value in settings.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{path}.")
        else:
            found[f"Setting {path}"] = value if isinstance(value, str) else repr(value)
    return found


def _ended(episode: Episode) -> dict[str, str]:
    stop, grade = episode.stop, episode.grade
    return {
        "Stop": "still running" if stop is None else stop.reason,
        "Answer": episode.answer.text if episode.answer is not None else "",
        "Grade": f"{grade.verdict}, {grade.passed}/{grade.total} tests" if grade else "",
        **{
            f"File {path}": f"{size} bytes, sha256 {sha256[:12]}"
            for path, size, sha256 in steps.files_of(episode)
        },
    }


def _took(episode: Episode) -> dict[str, str]:
    usage, helpers = episode.usage, episode.helper_usage
    return {
        "Tokens": f"{usage.input_tokens:,} in, {usage.output_tokens:,} out",
        "Tokens of helpers": f"{helpers.input_tokens:,} in, {helpers.output_tokens:,} out",
        "Time": f"{episode.seconds:.1f} s",
    }
