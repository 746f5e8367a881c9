"""What a page of a long episode takes: to make, on the disk, and to open in a browser.

Every attempt puts out 2 kB and fails one test of two; the prompt of each holds the whole
conversation before it.

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

from nbrefine.outputs import CellResult, Stream
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


def episode(attempts: int) -> Episode:
    """Make an episode of failed attempts; each prompt repeats all that was said before."""
    said = [Message("system", "You write Python."), Message("user", "Count the rows.")]
    turns = []
    for number in range(1, attempts + 1):
        code = f"rows = load({number})\nfor row in rows:\n    print(row)"
        line = f"row {number:05d} of the file\n"
        printed = line * (OUTPUT // len(line))
        feedback = f"1/2 tests passed.\n\n<output>\n{printed}</output>\n\nCorrect the code."
        good = CaseResult("test_1", "passed", "rows")
        bad = CaseResult("test_2", "failed", "len(rows) == 5", str(number), "5")
        reply = f"```python\n{code}\n```"
        turns.append(
            Turn(
                number=number,
                attempt=number,
                messages=tuple(said),
                reply=Reply(reply),
                extraction=Extraction("found", code, "python"),
                result=CellResult(code, "ok", (Stream("stdout", printed),)),
                tests=TestReport((good, bad)),
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
    long, short = episode(ATTEMPTS), episode(ATTEMPTS // 10)
    page.to_html(short)  # loads what is loaded once
    taken: dict[str, list[float]] = {"long": [], "short": []}
    for _ in range(ROUNDS):
        for name, each in (("long", long), ("short", short)):
            start = time.perf_counter()
            page.to_html(each)
            taken[name].append(time.perf_counter() - start)
    with tempfile.TemporaryDirectory() as folder:
        path = page.write(long, Path(folder, "long.html"))
        size = path.stat().st_size
        drawn = opened(path)
    prompts = sum(len(m.content) for turn in long.turns for m in turn.messages)
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
        Row(
            "its size",
            f"{size / 1e6:.1f} MB",
            f"{prompts / 1e6:,.0f} MB, all prompts as they were sent",
            "",
            f"≤ {MEGABYTES:.0f} MB",
            size <= MEGABYTES * 1e6,
        ),
    ]
    if drawn:
        rows.append(Row("opened in Chromium until it is drawn", spread(drawn, "s")))
    raw: dict[str, Any] = {**taken, "bytes": size, "opened": drawn}
    return Figures(
        "The page of a long episode",
        f"{ROUNDS} times each, alternating: {ATTEMPTS:,} attempts with {OUTPUT // 1000} kB of "
        "output each, and prompts that hold the whole conversation so far.",
        tuple(rows),
        raw,
    )


if __name__ == "__main__":
    show(measure)
