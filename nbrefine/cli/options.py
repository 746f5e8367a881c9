"""The options that several commands have in common."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

MODEL = (
    "local, local:NAME, openai:NAME, scripted:FILE or recorded:FILE; see `nbrefine models list`."
)

Data = Annotated[
    list[str] | None,
    typer.Option(metavar="<path>", help="A data file it is about; may be repeated."),
]
Setup = Annotated[Path | None, typer.Option(help="Code that runs before the first attempt.")]
ModelName = Annotated[str | None, typer.Option(help=MODEL + "  [default: local]")]
BaseUrl = Annotated[str | None, typer.Option(help="Where an OpenAI-compatible server answers.")]
KernelName = Annotated[str | None, typer.Option(help="Name of the kernelspec.  [default: python3]")]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds that one cell may run.  [default: 120]")
]
Isolation = Annotated[
    str | None,
    typer.Option(
        help="Where attempts run: auto takes the first that can be had of fork (branches), "
        "rebuild (fresh kernels) and none (the session itself)."
    ),
]
RebuildLimit = Annotated[
    float | None,
    typer.Option(
        help="Seconds that setup and accepted cells have run up to which a session is rebuilt."
        "  [default: 5]"
    ),
]
Workspace = Annotated[
    str | None,
    typer.Option(
        help="What becomes of files that attempts write: overlay holds them back until an "
        "attempt is accepted, report only tells them, auto takes overlay where it can be had."
    ),
]
Temperature = Annotated[float | None, typer.Option(help="How freely replies vary.  [default: 0]")]
Seed = Annotated[int | None, typer.Option(help="Seeds the kernel and the model.  [default: 0]")]
MaxTotalTokens = Annotated[int | None, typer.Option(help="Tokens that the whole run may take.")]
MaxSeconds = Annotated[float | None, typer.Option(help="Seconds that the whole run may take.")]
Output = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="The notebook to write; code runs in its folder.  [default: episode.ipynb]",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an episode of that name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Give the result as one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no report.")]

_COMMON = ("base_url", "max_seconds", "max_total_tokens", "max_turns", "rebuild_limit")
SPELLED = {
    "run": _COMMON,
    "solve": (*_COMMON, "accept_best", "max_attempts", "max_replans"),
    "eval": ("batch_size",),
}
"""Command -> settings whose option is spelled in another way than the key of a file and the
argument."""


def spelled(told: str, command: str) -> str:
    """Call settings by a command's options where a message speaks of them.

    Where it names a line, it speaks of a file's keys.
    """
    names = SPELLED.get(command)
    if names is None or re.search(r", line \d+: ", told):
        return told
    return re.sub(
        rf"(?<![\w.\"'`/-])({'|'.join(names)})(?![\w=/]|\.\w)",
        lambda found: "--" + found[1].replace("_", "-"),
        told,
    )
