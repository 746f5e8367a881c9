"""From a model's reply to the one piece of code that is run.

A scanner of Markdown fences (CommonMark 0.31, section 4.5, read more leniently where models
stray from it), a parse check, and a rule of choice: the last block of the wanted language that
parses.  The code itself is never changed.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import islice

from nbrefine.redaction import clean_text
from nbrefine.source import parse
from nbrefine.thinking import BEGIN, END
from nbrefine.values import Extraction, Finish

CLOSERS = 16
"""How many possible ends of a block are tried until its code parses."""

_TAGS = {
    "python": {"python", "py", "python2", "python3", "py3", "ipython", "ipython3"},
    "bash": {"bash", "sh", "shell", "zsh"},
    "javascript": {"javascript", "js"},
    "typescript": {"typescript", "ts"},
}
_NO_CODE = {"", "console", "markdown", "md", "output", "plaintext", "stdout", "text", "txt"}
"""Tags that name no language, where any language is looked for."""


def extract(
    text: str, *, language: str | None = "python", finish: Finish = "stop", open_fence: bool = False
) -> Extraction:
    """Choose the code to run from a reply.

    Parameters
    ----------
    text: the reply as it came.
    language: the kernel's language, None for any; the syntax of Python alone is checked.
    finish: why the model stopped writing.
    open_fence: whether the prompt ended in an open fence, so that the reply begins inside it.
    """
    # A lone surrogate would never reach the kernel, and a byte order mark would hide a fence.
    text = clean_text(text).removeprefix("\ufeff")
    language = (language or "").lower()
    if open_fence and not _opening(text.lstrip("\n").partition("\n")[0]):
        return _continued(text, language, finish)
    scan = _scan(text, language)
    # Outside of strings and comments, no fence is Python.
    if scan.blocks and finish == "stop" and language in ("", "python") and _looks_like_code(text):
        return Extraction("found", text, reason="The whole reply is code, with fences in strings.")
    return _judged(scan, language, finish)


def one_of_many(blocks: int, told: str) -> str:
    """Tell a model that one of its code blocks was run, where what it misses may be in another.

    Parameters
    ----------
    blocks: in the reply.
    told: how the code went.
    """
    if blocks < 2 or "NameError" not in told:
        return ""
    return f"Your reply had {blocks} code blocks; only one of them was run. Put all code in one."


@dataclass(frozen=True, slots=True)
class _Block:
    tag: str
    code: str
    closed: bool
    fits: bool
    """Its tag names the wanted language."""
    valid: bool
    """Its code parses, as far as that is checked."""


@dataclass(frozen=True, slots=True)
class _Scan:
    blocks: list[_Block]
    prose: str
    """What stands outside blocks and thinking."""
    thinking: bool
    """Whether the text ended within a thinking section."""


def _judged(scan: _Scan, language: str, finish: Finish) -> Extraction:
    blocks, count = scan.blocks, len(scan.blocks)
    cut = finish in ("length", "content-filter")
    if blocks and not blocks[-1].closed and not _stray(blocks, finish):
        reason = "The last code block was opened and not closed."
        return Extraction("incomplete", blocks[-1].code, blocks[-1].tag, reason, count)
    candidates = [b for b in blocks if b.closed and b.code.strip() and (b.fits or not b.tag)]
    if candidates:
        return _chosen(candidates, count)
    if scan.thinking or cut:
        where = "within its thinking" if scan.thinking else "before a code block was complete"
        reason = f"The reply ended {where}."
        return Extraction("incomplete" if cut else "no-code", reason=reason, blocks=count)
    if blocks:
        held = ", ".join(sorted({b.tag or "untagged" for b in blocks}))
        wanted = f"{language} code" if language else "code"
        reason = f"No code block holds {wanted} (the blocks are: {held})."
        return Extraction("no-code", reason=reason, blocks=count)
    if language in ("", "python") and _looks_like_code(scan.prose):
        return Extraction("found", scan.prose, reason="No fence, but the whole reply is code.")
    return Extraction("no-code", reason="The reply holds no code block.")


def _stray(blocks: list[_Block], finish: Finish) -> bool:
    """Tell an open fence that only follows the answer from an answer that was cut."""
    last = blocks[-1]
    answered = any(b.fits and b.valid and b.closed for b in blocks)
    return answered and not last.fits and (bool(last.tag) or finish == "stop")


def _chosen(candidates: list[_Block], count: int) -> Extraction:
    def rank(at: int) -> tuple[bool, bool, bool, int]:
        block = candidates[at]
        return block.fits, block.valid, block.fits or _looks_like_code(block.code), at

    block = candidates[max(range(len(candidates)), key=rank)]
    if not block.valid:
        reason = "The last code block; it does not parse."
    elif len(candidates) == 1:
        reason = "The only code block."
    else:
        reason = f"The last of {len(candidates)} code blocks that parses."
    return Extraction("found", block.code, block.tag, reason, count)


def _continued(text: str, language: str, finish: Finish) -> Extraction:
    """Judge a reply that begins inside the fence the prompt has opened."""
    lines = [f"```{language}", *text.split("\n")]
    opening = _opening(lines[0])
    assert opening is not None
    begun, _ = _read(lines, 0, opening, language)
    ended = begun.closed or (finish == "stop" and _looks_like_code(begun.code))
    if begun.valid and ended:
        reason = "The reply goes on in the fence that the prompt opened."
        return Extraction("found", begun.code, language, reason, 1)
    plain = _judged(_scan(text, language), language, finish)
    if plain.status == "found" or (not begun.closed and plain.status == "no-code"):
        return plain
    if begun.closed:
        return Extraction(
            "found", begun.code, language, "The only code block; it does not parse.", 1
        )
    return Extraction("incomplete", begun.code, language, "The fence was not closed.", 1)


# Only where a line begins: prose may speak of the tags.
_THINK = re.compile(rf"[ \t]*{BEGIN}", re.IGNORECASE)
_THOUGHT = re.compile(END, re.IGNORECASE)
_THOUGHT_EDGE = re.compile(rf"[ \t]*{END}|.*{END}\s*$", re.IGNORECASE)

_OPENING = re.compile(
    r"(?P<lead>[ \t]*(?:(?:>|[-*+]|\d{1,9}[.)])[ \t]*)*)(?P<mark>`{3,}|~{3,})(?P<info>.*)"
)
_WORD = re.compile(r"[A-Za-z0-9_+#-]+")


def _opening(line: str) -> re.Match[str] | None:
    found = _OPENING.fullmatch(line.rstrip("\r"))
    if found and found["mark"].startswith("`") and "`" in found["info"]:
        return None  # inline code
    return found


def _scan(text: str, language: str, *, nest: bool = True) -> _Scan:
    lines = text.split("\n")  # splitlines() would split at form feeds within strings too
    blocks: list[_Block] = []
    prose: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if _THINK.match(line):
            ends = (i for i in range(at, len(lines)) if _THOUGHT.search(lines[i]))
            at = next(ends, len(lines))
            if at == len(lines):
                return _Scan(blocks, "\n".join(prose), thinking=True)
            lines[at] = _THOUGHT.split(lines[at], maxsplit=1)[1]
        elif _THOUGHT_EDGE.match(line):
            # Some chat templates open the section in the prompt: all so far was thinking.
            blocks, prose = [], []
            lines[at] = _THOUGHT.split(line, maxsplit=1)[1]
        elif opening := _opening(line):
            block, end = _read(lines, at, opening, language)
            inner = _nested(lines[at + 1 : end], block, language) if nest else []
            blocks.extend(inner or [block])
            at = end
        else:
            prose.append(line)
            at += 1
    return _Scan(blocks, "\n".join(prose), thinking=False)


def _read(lines: list[str], at: int, opening: re.Match[str], language: str) -> tuple[_Block, int]:
    """Read the block that begins at a line; give it and the index after its last line."""
    word = _WORD.search(opening["info"])
    tag = word[0].lower() if word else ""
    fits = tag in _TAGS.get(language, {language}) if language else tag not in _NO_CODE
    checked = language in ("", "python") and (not tag or tag in _TAGS["python"])
    mark = opening["mark"]
    closer = re.compile(rf"[ \t>]*{mark[0]}{{{len(mark)},}}[ \t\r]*")
    closers = (i for i in range(at + 1, len(lines)) if closer.fullmatch(lines[i]))
    first: tuple[_Block, int] | None = None
    # A fence within a string of the code ends the block too early: a later one may be the end.
    for end in islice(closers, CLOSERS if checked else 1):
        code = _body(lines[at + 1 : end], opening["lead"])
        valid = not checked or parse(code) is not None
        read = _Block(tag, code, closed=True, fits=fits, valid=valid), end + 1
        if valid:
            return read
        first = first or read
        if not _in_string(code):
            break
    if first:
        return first
    code = _body(lines[at + 1 :], opening["lead"])
    valid = not checked or parse(code) is not None
    return _Block(tag, code, closed=False, fits=fits, valid=valid), len(lines)


def _in_string(code: str) -> bool:
    return code.count('"""') % 2 == 1 or code.count("'''") % 2 == 1


def _body(lines: list[str], lead: str) -> str:
    """Take the opening fence's own indentation and quote marks from the lines of a block."""
    if ">" in lead:
        quote = re.compile(rf"(?:[ \t]*> ?){{0,{lead.count('>')}}}")
        lines = [quote.sub("", line, count=1) for line in lines]
        lead = lead.rpartition(">")[2].removeprefix(" ")
    # Code that stands left of its fence keeps its inner indentation whole.
    first = next((line for line in lines if line.strip()), "")
    width = min(len(lead), _indent(first))
    return "\n".join(line[min(width, _indent(line)) :] for line in lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _nested(lines: list[str], block: _Block, language: str) -> list[_Block]:
    """Find the wanted blocks within one that is no code itself, such as a page of Markdown."""
    if block.fits or (block.valid and not block.tag) or not any(map(_opening, lines)):
        return []
    inner = _scan("\n".join(lines), language, nest=False)
    return [b for b in inner.blocks if b.fits and b.closed]


_SIGNS_OF_CODE = (
    ast.Assign,
    ast.AsyncFunctionDef,
    ast.AugAssign,
    ast.Call,
    ast.ClassDef,
    ast.For,
    ast.FunctionDef,
    ast.If,
    ast.Import,
    ast.ImportFrom,
    ast.Try,
    ast.While,
    ast.With,
)


def _looks_like_code(text: str) -> bool:
    """Tell code from words that happen to parse, such as "ok" or "Answer: yes"."""
    tree = parse(text, magics=False)  # as a magic, "Shall I?" would be a call for help
    return tree is not None and any(isinstance(node, _SIGNS_OF_CODE) for node in ast.walk(tree))
