"""Run the demo task with five seeds on the local model, and write down all that came of it.

Every run is `nbrefine run nbrefine/examples/penguins.yaml` as `make demo` starts it, in a process
of its own; only the model is named, and each run has its own seed and notebook. The notebooks
keep every reply unedited; the table goes into README.md.

    python benchmarks/demo.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from nbrefine import load
from nbrefine.models import weights
from nbrefine.values import Episode, Turn

SEEDS = range(5)
MODEL = "qwen2.5-coder-1.5b"
HERE = Path(__file__).parent
TASK = HERE.parent / "nbrefine" / "examples" / "penguins.yaml"
NBREFINE = Path(sys.executable).with_name("nbrefine")
BLOCK = re.compile(r"(?<=<!-- demo:begin -->\n).*(?=<!-- demo:end -->)", re.DOTALL)


def main() -> None:
    said = [fetched()]
    (HERE / "demo").mkdir(exist_ok=True)
    runs = []
    for seed in SEEDS:
        runs.append(run(seed))
        print(line(seed, *runs[-1]), flush=True)
    episodes = [episode for episode, _ in runs]
    solved = [episode for episode in episodes if episode.solved]
    repaired = [episode for episode in solved if len(episode.turns) > 1]
    said.append(
        f"{len(solved)} of {len(episodes)} runs solved the task, "
        f"{len(repaired)} of them after at least one rejected attempt. Model: "
        f"{episodes[0].model}; temperature {episodes[0].settings['temperature']}, "
        f"top_p {episodes[0].settings['top_p']}."
    )
    rows = [line(seed, *each) for seed, each in zip(SEEDS, runs, strict=True)]
    text = "\n\n".join([*said, "\n".join([HEAD, *rows])]) + "\n"
    print(text)
    readme = HERE / "README.md"
    readme.write_text(BLOCK.sub(lambda _: text, readme.read_text()))


def fetched() -> str:
    """Fetch the weights, where they are not here, and say what that took."""
    if weights.find(MODEL) is not None:
        return f"The weights of {MODEL} were here already; fetching them is not in the times."
    started = time.monotonic()
    weights.pull(MODEL).result()
    return f"Fetching the weights of {MODEL} took {time.monotonic() - started:.0f} s, not counted."


def run(seed: int) -> tuple[Episode, float]:
    """Give the episode and the seconds from the command's start to its end."""
    record = HERE / "demo" / f"seed-{seed}.ipynb"
    command = [NBREFINE, "run", TASK, "--model", f"local:{MODEL}", "--seed", str(seed)]
    started = time.monotonic()
    ended = subprocess.run([*command, "-o", record, "--overwrite", "--quiet"], check=False)
    if ended.returncode not in (0, 1):  # solved or not; anything else is no result
        raise SystemExit(ended.returncode)
    return load(record), time.monotonic() - started


HEAD = """\
| seed | ended | turns | rejected | tokens in | tokens out | seconds | what became of each attempt |
|---|---|---|---|---|---|---|---|"""


def line(seed: int, episode: Episode, seconds: float) -> str:
    assert episode.stop is not None
    cells = (
        f"[{seed}](demo/seed-{seed}.ipynb)",
        episode.stop.reason,
        len(episode.turns),
        sum(not turn.accepted for turn in episode.turns),
        f"{episode.usage.input_tokens:,}",
        f"{episode.usage.output_tokens:,}",
        f"{seconds:.0f}",
        ", then ".join(became(turn) for turn in episode.turns),
    )
    return f"| {' | '.join(map(str, cells))} |"


def became(turn: Turn) -> str:
    if turn.result is None:
        return turn.verdict
    if turn.result.error is not None:
        return f"`{turn.result.error}`".replace("|", "\\|").replace("\n", " ")
    if turn.tests is not None:
        return f"{turn.tests.passed}/{turn.tests.total} tests"
    return turn.result.status


if __name__ == "__main__":
    main()
