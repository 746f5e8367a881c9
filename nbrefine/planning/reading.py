"""Subtasks from what a task file says, or a model wrote: tolerant in form, strict in meaning."""

from __future__ import annotations

import difflib
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbrefine.errors import UsageError, nearest
from nbrefine.planning.entries import entries_of, split_check, without_backticks
from nbrefine.postconditions import postcondition_of
from nbrefine.values import Origin, Postcondition, Subtask

if TYPE_CHECKING:
    import yaml

MOST_SUBTASKS = 20
"""More than so many are no plan that somebody could follow."""

_KEYS = ("goal", "needs", "check", "checks")


def subtasks_of(data: Any, *, origin: Origin) -> tuple[Subtask, ...]:
    """Make subtasks of what YAML or JSON says.

    Parameters
    ----------
    data: a list of goals, of subtasks, which stay as they are, or of mappings with `goal` and, if
        wanted, `needs` (1-based numbers of earlier ones) and `check` or `checks` (see
        `postcondition_of`).
    origin: who asks for the checks.

    Raises
    ------
    UsageError: there is none or too many, a key is unknown, a goal is blank, a check is none, or
        one needs another that does not come before it; the message names the step.
    """
    if isinstance(data, (str, Mapping)) or not isinstance(data, Sequence):
        raise UsageError(f"The steps are a list, not {reprlib.repr(data)}", hint=_FORM)
    if not 1 <= len(data) <= MOST_SUBTASKS:
        raise UsageError(
            f"There are {len(data)} steps, but 1 to {MOST_SUBTASKS} are expected",
            hint="Put several small steps together" if data else _FORM,
        )
    return tuple(_subtask(item, number, origin) for number, item in enumerate(data, start=1))


_FORM = "Write a list of goals, or of entries with goal, needs and check"


def _subtask(item: Any, number: int, origin: Origin) -> Subtask:
    where = f"Step {number}"
    if isinstance(item, Subtask):
        return replace(item, needs=_needs(item.needs, number))
    given = {"goal": item} if isinstance(item, str) else item
    if not isinstance(given, Mapping):
        raise UsageError(f"{where} is {reprlib.repr(item)}, which is no goal", hint=_FORM)
    for key in given:
        if key not in _KEYS:
            raise UsageError(
                f'{where}: unknown key "{key}"',
                hint=f"{nearest(str(key), _KEYS)}Allowed: {', '.join(_KEYS)}",
            )
    goal = given.get("goal")
    if not isinstance(goal, str) or not goal.strip():
        told = (
            "has no goal"
            if goal is None
            else f"has the goal {reprlib.repr(goal)}, which says nothing"
        )
        raise UsageError(f"{where} {told}", hint="Say in words what is to be done")
    return Subtask(goal.strip(), _needs(given.get("needs"), number), _checks(given, where, origin))


def _needs(data: Any, number: int) -> tuple[int, ...]:
    listed = [] if data is None else data if isinstance(data, (list, tuple)) else [data]
    found = dict.fromkeys(_number(each, number) for each in listed)
    for needed in found:
        if not 1 <= needed < number:
            raise UsageError(
                f"Step {number} needs step {needed}, which does not come before it",
                hint="Count from the first step of this list, and let each need earlier ones only",
            )
    return tuple(found)


def _number(data: Any, number: int) -> int:
    if isinstance(data, int) and not isinstance(data, bool):
        return data
    named = re.fullmatch(r"(?:step\s*)?#?([0-9]{1,3})", str(data).strip(), re.IGNORECASE)
    if named is None:
        raise UsageError(
            f"Step {number} needs {reprlib.repr(data)}, which is no number of a step",
            hint="Give the numbers of earlier steps, such as needs: [1, 2]",
        )
    return int(named[1])


def _checks(given: Mapping[Any, Any], where: str, origin: Origin) -> tuple[Postcondition, ...]:
    both = [given[key] for key in ("check", "checks") if given.get(key) is not None]
    listed = [
        each for data in both for each in (data if isinstance(data, (list, tuple)) else [data])
    ]
    return tuple(
        _check(data, f"{where}, check {place}", origin) for place, data in enumerate(listed, 1)
    )


def _check(data: Any, where: str, origin: Origin) -> Postcondition:
    try:
        return postcondition_of(data, origin=origin)
    except UsageError as error:
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None


def read_plan(text: str) -> tuple[Subtask, ...]:
    """Read the subtasks that a model wrote.

    Parameters
    ----------
    text: JSON or YAML as `subtasks_of` takes it, also under the key `subtasks`, `plan` or
        `steps`; or a numbered or bulleted list of goals, in which lines set in belong to the goal
        above and lines before the first goal to none.

    Raises
    ------
    UsageError: it holds no plan, or one that cannot be followed; the message can be fed back.
    """
    if len(text) > _LONGEST:
        raise UsageError(f"A plan of {len(text):,} characters is too long", hint=_PLAN)
    body = _unfenced(text)
    if not body.strip():
        raise UsageError("The plan is empty", hint=_PLAN)
    data, problem = _structure(body)
    items = _items(data)
    if items is None and _STRUCTURED.search(body) and not body.lstrip().startswith(("{", "[")):
        items = entries_of(body, _WORDS)
    if items is None and problem and _STRUCTURED.search(body):
        raise UsageError(f"The plan is no YAML: {problem}", hint=_QUOTE)
    return _plan_of(_goals(body) if items is None else items)


def plan_of(data: Any) -> tuple[Subtask, ...]:
    """Read the subtasks that a model gave as data, such as the argument of a call.

    Parameters
    ----------
    data: what `read_plan` finds in a text, or such a text itself.

    Raises
    ------
    UsageError: as `read_plan`.
    """
    return read_plan(data) if isinstance(data, str) else _plan_of(_items(data))


def _plan_of(items: list[Any] | None) -> tuple[Subtask, ...]:
    if not items:
        raise UsageError("The plan holds no list of steps", hint=_PLAN)
    _refuse_long(items)
    entries = [_entry(item, number) for number, item in enumerate(items, start=1)]
    return subtasks_of(entries, origin="model")


def _refuse_long(items: list[Any]) -> None:
    """Refuse what no prompt has room for, and what cannot even be shown in an error."""
    try:
        size = len(json.dumps(items, ensure_ascii=False, default=str, skipkeys=True))
    except RecursionError:
        raise UsageError("The plan is nested too deeply", hint=_PLAN) from None
    except ValueError:  # its digits are more than Python writes
        raise UsageError("The plan holds a number that is too long", hint=_PLAN) from None
    if size > _LONGEST:
        raise UsageError(f"A plan of {size:,} characters is too long", hint=_PLAN)


_LONGEST = 40_000
_PLAN = "Write one goal on each line, numbered 1., 2., 3."
_QUOTE = "Put a text that holds a colon or begins with a sign in quotes"
_STRUCTURED = re.compile(
    r"^[ \t\[{,*-]*(?:\d+[.)][ \t]*)?[*\"']{0,4}(goal|needs|checks?)[*\"']{0,4}\s*:",
    re.MULTILINE | re.IGNORECASE,
)
"""What stands in YAML or JSON that was meant as such, and in no plain list."""


def _unfenced(text: str) -> str:
    found = _FENCED.search(text)
    return found[1] if found else text


_FENCED = re.compile(r"^[ \t]*```[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)


def _structure(text: str) -> tuple[Any, str]:
    """Give what a text holds as JSON or YAML, and why it is neither, or ""."""
    try:
        return json.loads(text, object_pairs_hook=_once), ""
    except json.JSONDecodeError:
        return _as_yaml(text)
    except RecursionError:
        return None, "it is nested too deeply"
    except UsageError:  # a ValueError, too
        raise
    except ValueError:
        return None, "a number in it is too long"


def _as_yaml(text: str) -> tuple[Any, str]:
    import yaml

    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            return None, "it refers to another part of itself with *"
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeats(node)
        return yaml.safe_load(text), ""
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f"line {mark.line + 1}: " if mark else ""
        return None, f"{line}{error.problem or error.context}"
    except RecursionError:
        return None, "it is nested too deeply"
    except yaml.YAMLError as error:  # a sign that YAML has no place for
        return None, str(error).splitlines()[0]
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - YAML's values raise anything, as a 13th month does
        return None, f"a value in it cannot be read ({type(error).__name__})"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _twice(key)
        found[key] = value
    return found


def _refuse_repeats(node: yaml.Node | None) -> None:
    """Refuse a key that stands twice in one block, of which YAML would drop the first."""
    if node is None or isinstance(node.value, str):
        return
    keys: set[str] = set()
    for item in node.value:
        for inner in item if isinstance(item, tuple) else (item,):
            _refuse_repeats(inner)
        if isinstance(item, tuple):
            key = str(item[0].value)
            if key in keys:
                raise _twice(key)
            keys.add(key)


def _twice(key: str) -> UsageError:
    return UsageError(f'The plan has the key "{key}" twice in one step', hint="Keep one of them")


def _items(data: Any) -> list[Any] | None:
    """Give the entries of a structured plan; None where it is none."""
    if isinstance(data, list):
        return data
    if not isinstance(data, dict):
        return None
    named = {str(key).strip().casefold(): value for key, value in data.items()}
    if not named.keys().isdisjoint(_GOALS):
        return [data]
    inner = next((named[key] for key in _LISTS if key in named), None)
    if inner is None and len(named) == 1 and named.keys().isdisjoint((*_KEYS, *_OTHER)):
        (inner,) = named.values()  # under a heading of its own
    return _goals(inner) if isinstance(inner, str) else inner if isinstance(inner, list) else None


def _goals(text: str) -> list[Any] | None:
    """Give the goals of a plain list; None where there is no such list."""
    goals: list[list[str]] = []
    first, margin, gap = "", 0, False
    for line in text.expandtabs(4).splitlines():
        inset = len(line) - len(line.lstrip())
        mark = _MARK.match(line)
        kind = mark.lastgroup or "" if mark else ""
        said = _bare(line[mark.end() :] if mark else line)
        if kind and (not goals or (kind == first and inset <= margin)):
            first, margin = kind, inset
            goals.append([said])
        elif goals and said and (inset > margin or kind or not gap):
            goals[-1].append(said)
        gap = not line.strip()
    return [" ".join(filter(None, parts)) for parts in goals] or None


_MARK = re.compile(
    r"\s*(?:#{1,6}\s+)?\**(?:"
    r"(?P<number>\(?\d+\s*[.):]|step\s+\d+\s*[.):\u2013\u2014-]?)|(?P<bullet>[-*+\u2022])"
    r")\**(?=\s|$)",
    re.IGNORECASE,
)
"""What an entry of a plain list begins with: "2.", "(2)", "Step 2:", "## Step 2", "-" …"""


def _bare(text: str) -> str:
    """Leave out bold type and boxes to tick."""
    return re.sub(r"^\[[ xX]?\]\s", "", text.strip()).replace("**", "").strip()


def _entry(item: Any, number: int) -> Any:
    """Give an entry as `subtasks_of` takes it, where a model has put it in other words."""
    if isinstance(item, str):
        goal, check = split_check(_bare(item))
        return {"goal": goal, "check": check} if check else goal
    if not isinstance(item, dict):
        return item
    if len(item) == 1 and (split := _rejoined(*item.items())):
        return split
    named = {str(key).strip().casefold(): value for key, value in item.items()}
    needs = any(_OTHER.get(name, name) == "needs" for name in named)
    entry: dict[str, Any] = {}
    for name, value in named.items():
        # A number of its own is as good as the place in the list, unless needs count by it.
        if name in _NUMBERS and isinstance(value, int) and (value == number or not needs):
            continue
        usual = _OTHER.get(name, name)
        entry[name if usual in entry or (usual != name and usual in named) else usual] = value
    return {
        key: _plain(value) if key in ("check", "checks") else value for key, value in entry.items()
    }


def _plain(check: Any) -> Any:
    """Take the backticks off checks, which are code in any case."""
    if isinstance(check, list):
        return [_plain(each) for each in check]
    return without_backticks(check) if isinstance(check, str) else check


def _rejoined(pair: tuple[Any, Any]) -> str:
    """Give a goal such as "Load: the file", which YAML takes for a key and its value, or ""."""
    key, value = pair
    if difflib.get_close_matches(str(key).casefold(), (*_KEYS, *_OTHER), n=1):
        return ""
    parts = value if isinstance(value, list) else [value]
    return f"{key}: {'; '.join(parts)}" if all(isinstance(part, str) for part in parts) else ""


_LISTS = ("subtasks", "plan", "steps")
_GOALS = ("goal", "task", "step", "subtask", "title", "description")
_NUMBERS = ("step", "number", "id", "n")
_OTHER = {
    **dict.fromkeys(_GOALS, "goal"),
    **dict.fromkeys(("depends_on", "dependencies", "requires"), "needs"),
    **dict.fromkeys(("postcondition", "postconditions", "verify"), "checks"),
}
"""Other words for the keys, as models put them."""
_WORDS = {**_OTHER, "needs": "needs", "check": "checks", "checks": "checks"}
