"""Entries of a plan that was meant as YAML and is none, read line by line.

Small models put code in backticks, leave out quotes where a colon needs them, number the entries,
or talk before and after them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_KEY = re.compile(
    r"(?P<mark>\s*(?:[-*+\u2022]\s+|\(?\d+\s*[.):]\s+)?)[*\"']*(?P<key>\w+)[*\"']*\s*:"
    r"[*\"']*(?P<rest>(?<=[*:\"'])\s.*|)$"
)
_MARK = re.compile(r"(?P<mark>\s*(?:[-*+\u2022]|\(?\d+\s*[.):])\s+)(?P<rest>\S.*)$")


@dataclass(slots=True)
class _Entry:
    inset: int
    """Of what stands behind its mark."""
    parts: dict[str, list[str]] = field(default_factory=dict)
    """Key -> its texts; of a goal, the lines."""
    others: dict[str, Any] = field(default_factory=dict)
    """Keys that are not known."""


def entries_of(text: str, keys: Mapping[str, str]) -> list[dict[str, Any]] | None:
    """Read the entries of a plan; None where there are none.

    An entry begins with its goal, or with a mark such as "2." and a text, which is the goal.

    Parameters
    ----------
    keys: each word for a key, in small letters -> the key: `goal`, `needs` or `checks`.  Another
        word in the place of one is given as it stands, for who knows which there are.
    """
    found: list[_Entry] = []
    last = ""
    for line in text.expandtabs(4).splitlines():
        keyed, marked = _KEY.match(line), _MARK.match(line)
        key = keys.get(keyed["key"].casefold(), "") if keyed else ""
        inset = len(line) - len(line.lstrip())
        if keyed and key:
            said = keyed["rest"].strip()
            if key == "goal" and said.isdigit():
                continue  # "step: 1" is its number
            if key == "goal":
                found.append(_Entry(len(keyed["mark"])))
            if found:
                last = key
                found[-1].parts.setdefault(key, []).extend([said] if said else [])
        elif found and keyed and not keyed["mark"].strip() and 0 < inset == found[-1].inset:
            said = keyed["rest"].strip()
            found[-1].others[keyed["key"]] = int(said) if said.isdecimal() else said
            last = ""
        elif found and last and line.strip() and inset > 0 and inset >= found[-1].inset:
            _go_on(found[-1].parts, last, marked["rest"] if marked else line, anew=bool(marked))
        elif marked and (not found or inset < found[-1].inset):
            found.append(_Entry(len(marked["mark"]), {"goal": [marked["rest"].strip()]}))
            last = "goal"
        elif line.strip():
            last = ""
    entries = [{**_entry(each.parts), **each.others} for each in found]
    return entries or None


def _go_on(parts: dict[str, list[str]], key: str, line: str, *, anew: bool) -> None:
    texts = parts.setdefault(key, [])
    if key == "goal" or anew or not texts:
        texts.append(line.strip())
    else:
        texts[-1] += f" {line.strip()}"


def _entry(parts: dict[str, list[str]]) -> dict[str, Any]:
    entry: dict[str, Any] = {"goal": _bare(" ".join(parts.get("goal", ())))}
    if "needs" in parts:
        entry["needs"] = [int(number) for number in re.findall(r"\d+", " ".join(parts["needs"]))]
    if "checks" in parts:
        entry["checks"] = [each for text in parts["checks"] for each in _checks(text)]
    return entry


def _checks(text: str) -> list[Any]:
    """Give the checks of a line: an expression, a list of such, or a mapping as YAML has it."""
    import yaml

    if text.startswith("{"):
        try:
            mapping = yaml.safe_load(text)
        except yaml.YAMLError:
            mapping = None
        if isinstance(mapping, dict) and None not in mapping.values():
            return [mapping]
    if text.startswith("["):
        try:
            listed = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            listed = None
        if isinstance(listed, list) and all(isinstance(each, str) for each in listed):
            return listed
    return [_bare(text)]


def _bare(text: str) -> str:
    """Take off quotes that are around all of a text."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def without_backticks(text: str) -> str:
    """Give the code of a text that is nothing but code between backticks; else the text."""
    found = re.fullmatch(r"\s*(`+)([^`]+)\1[.,;]?\s*", text)
    return found[2].strip() if found else text


def split_check(goal: str) -> tuple[str, str]:
    """Split a goal such as "Load the file, check: `len(df) > 0`"; without a check, it is ""."""
    found = _CHECK.search(goal)
    before = goal[: found.start()].rstrip(" \t\n,;:(*\u2013\u2014-") if found else ""
    return (before, found[2].strip()) if found and before else (goal, "")


_CHECK = re.compile(r"\bchecks?\*{0,2}:\*{0,2}\s*(`+)([^`]+)\1[\s.)]*$", re.IGNORECASE)
