"""What a page of a long episode takes: to make, on the disk, and to open in a browser.

Every attempt puts out 2 kB and fails one test of two; the prompt of each holds the whole
conversation before it.  In a second episode every attempt ends with an error besides, whose
traceback goes through four frames of libraries.

    python benchmarks/page.py
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import Figures, Row, show, spread

from nbrefine import prompts
from nbrefine.outputs import CellResult, Failure, Stream
from nbrefine.values import (
    CaseResult,
    Episode,
    Extraction,
    Message,
    Reply,
    Stop,
    Task,
    TestReport,
    Turn,
)
from nbrefine.views import page

ROUNDS = 10
ATTEMPTS = 1_000
OUTPUT = 2_000
SECONDS, MEGABYTES = 5.0, 5.0


LIBRARIES = "\n\n".join(
    f"File /srv/env/lib/python3.11/site-packages/tables/core/{name}.py:{line}, in {name}(self, key)"
    + "".join(f"\n   {n:4}     checked = self.checked({n}, key)" for n in range(line - 6, line))
    + f"\n-> {line:4}     return self.{name}(checked)"
    + "".join(f"\n   {n:4}     # or else {n}" for n in range(line + 1, line + 6))
    for name, line in (("frame", 4102), ("lookup", 870), ("index", 3812), ("engine", 167))
)
"""2 kB of a traceback, as IPython writes it."""


def failure(number: int) -> Failure:
    """Give the error that an attempt ends with: a frame of its own, and those of libraries."""
    own = (
        f"Cell In[{number}], line 3\n      1 rows = load({number})\n      2 for row in rows:\n"
        f"----> 3     print(row['price {number}'])"
    )
    head = f"{'-' * 75}\nKeyError{' ' * 34}Traceback (most recent call last)"
    error = f"'price {number}'"
    return Failure("KeyError", error, (head, own + "\n", f"{LIBRARIES}\n", f"KeyError: {error}"))


def episode(attempts: int, *, failing: bool = False) -> Episode:
    """Make an episode of failed attempts; each prompt repeats all that was said before.

    Parameters
    ----------
    failing: whether each ends with an error besides.
    """
    said = [Message("system", "You write Python."), Message("user", "Count the rows.")]
    turns = []
    for number in range(1, attempts + 1):
        code = f"rows = load({number})\nfor row in rows:\n    print(row)"
        line = f"row {number:05d} of the file\n"
        printed = line * (OUTPUT // len(line))
        error = failure(number) if failing else None
        put_out = (Stream("stdout", printed), *([error] if error else ()))
        result = CellResult(code, "error" if error else "ok", put_out, error)
        good = CaseResult("test_1", "passed", "rows")
        bad = CaseResult("test_2", "failed", "len(rows) == 5", str(number), "5")
        tests = TestReport((good, bad))
        extraction = Extraction("found", code, "python")
        feedback = prompts.feedback(extraction, result=result, tests=tests)
        reply = f"```python\n{code}\n```"
        turns.append(
            Turn(
                number=number,
                attempt=number,
                messages=tuple(said),
                reply=Reply(reply),
                extraction=extraction,
                result=result,
                tests=tests,
                feedback=feedback,
                isolation="fork",
                seconds=1.0,
            )
        )
        said += [Message("assistant", reply), Message("user", feedback)]
    stop = Stop("max-turns", f"the limit of turns ({attempts}) was reached")
    return Episode(Task("Count the rows."), turns=tuple(turns), stop=stop)


def opened(path: Path) -> list[float]:
    """Give the seconds until a browser has drawn a page; () where there is none."""
    program = shutil.which("chromium")
    if program is None:
        return []
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(ROUNDS):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(path.as_uri())
            tab.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            taken.append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return taken


def measure() -> Figures:
    episodes = {
        "long": episode(ATTEMPTS),
        "failing": episode(ATTEMPTS, failing=True),
        "short": episode(ATTEMPTS // 10),
    }
    page.to_html(episodes["short"])  # loads what is loaded once
    taken: dict[str, list[float]] = {name: [] for name in episodes}
    for _ in range(ROUNDS):
        for name, each in episodes.items():
            start = time.perf_counter()
            page.to_html(each)
            taken[name].append(time.perf_counter() - start)
    sizes = {name: len(page.to_html(each).encode()) for name, each in episodes.items()}
    with tempfile.TemporaryDirectory() as folder:
        drawn = opened(page.write(episodes["long"], Path(folder, "long.html")))
    sent = {
        name: sum(len(m.content) for turn in each.turns for m in turn.messages)
        for name, each in episodes.items()
    }
    middle = statistics.median(taken["long"])
    rows = [
        Row(
            f"a page of {ATTEMPTS:,} attempts, made",
            spread(taken["long"], "s"),
            f"{spread(taken['short'], 's')}, {ATTEMPTS // 10} attempts",
            f"{middle / statistics.median(taken['short']):.1f} times as long",
            f"≤ {SECONDS:.0f} s",
            middle <= SECONDS,
        ),
        _size("its size", sizes["long"], sent["long"]),
        _size("its size with a traceback in each", sizes["failing"], sent["failing"]),
    ]
    if drawn:
        rows.append(Row("opened in Chromium until it is drawn", spread(drawn, "s")))
    raw: dict[str, Any] = {**taken, "bytes": sizes, "opened": drawn}
    return Figures(
        "The page of a long episode",
        f"{ROUNDS} times each, alternating: {ATTEMPTS:,} attempts with {OUTPUT // 1000} kB of "
        "output each, and prompts that hold the whole conversation so far.",
        tuple(rows),
        raw,
    )


def _size(name: str, size: int, sent: int) -> Row:
    return Row(
        name,
        f"{size / 1e6:.1f} MB",
        f"{sent / 1e6:,.0f} MB, all prompts as they were sent",
        "",
        f"≤ {MEGABYTES:.0f} MB",
        size <= MEGABYTES * 1e6,
    )


if __name__ == "__main__":
    show(measure)
