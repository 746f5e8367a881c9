"""A person at a terminal who is asked before each cell runs."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from nbrefine.env.approval import Approve, Decision, Proposal
from nbrefine.notebook.markdown import visible


def by_terminal() -> Approve:
    """Give what shows a cell on stderr, and asks there what is to become of it."""
    answers = _Answers()

    def ask(proposal: Proposal) -> Decision:
        goal = f": {visible(proposal.goal)}" if proposal.goal else ""
        typer.echo(f"\nStep {proposal.step}, attempt {proposal.attempt}{goal}\n", err=True)
        typer.echo(visible(proposal.code.rstrip()) + "\n", err=True)
        edits = proposal.what == "cell"
        choice = (
            "Run it? [y]es, [e]dit, [n]o, [s]top: "
            if edits
            else "Take this plan, and run its checks? [y]es, [n]o, [s]top: "
        )
        # Anything else, Enter alone too, asks again: nothing runs that nobody has said yes to.
        while (said := answers.to(choice)) is not None:
            match said.lower()[:1]:
                case "y":
                    return Decision("approve")
                case "e" if edits:
                    edited = _edited(proposal.code)
                    if edited is not None:
                        return Decision("edit", code=edited)
                case "n":
                    return Decision("reject", reason=answers.to("Why? The model is told: ") or "")
                case "s":
                    return Decision("stop")
        return Decision("stop", reason="nobody answered")

    return ask


class _Answers:
    """The lines of the standard input.

    They are waited for without a lock of Python's: a thread that waits in `input()` while the
    process ends has it abort.
    """

    def __init__(self) -> None:
        self._read = b""

    def to(self, question: str) -> str | None:
        """Ask, and give the answer; None where there is no more."""
        typer.echo(question, err=True, nl=False)
        while b"\n" not in self._read:
            more = self._more()
            if not more:
                said, self._read = self._read, b""
                return said.decode(errors="replace").strip() if said else None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _more(self) -> bytes:
        try:
            descriptor = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # there is none
            return b""
        select.select([descriptor], [], [])
        return os.read(descriptor, 1 << 16)


def _edited(code: str) -> str | None:
    """Open code in the person's editor, and give what was saved; None where nothing was."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with TemporaryDirectory(prefix="nbrefine-edit-") as folder:
        file = Path(folder) / "cell.py"
        file.write_text(code, encoding="utf-8")
        try:
            subprocess.run([*editor, str(file)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            typer.echo(f"The editor {editor[0]} did not do it: {error}", err=True)
            return None
        saved = file.read_text(encoding="utf-8")
    return saved if saved.strip() and saved != code else None
