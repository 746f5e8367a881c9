"""Record the example episodes that the package carries, on the local model, replies unedited.

Each shows one thing that happens to refinement loops.  A task was chosen, with its seed and
settings, because the thing happens there by itself; what the model replies is kept as it is.  The
table goes into README.md.

    python benchmarks/examples.py [NAME ...]     # all of them, or these anew

Run it from an environment at a place that may be named: a traceback tells where packages lie.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from demo import became

from nbrefine import Grader, Sampling, Task, load, refine, save, solve
from nbrefine.examples import EXAMPLES, path_of
from nbrefine.models import resolve
from nbrefine.stopping import StopRule
from nbrefine.values import Episode, GradeNote

MODEL = "local:qwen2.5-coder-1.5b"
HERE = Path(__file__).parent
BLOCK = re.compile(r"(?<=<!-- examples:begin -->\n).*(?=<!-- examples:end -->)", re.DOTALL)


def cycle(**options: Any) -> Episode:
    return refine(
        Task(
            "Write headline(text): text in title case.",
            id="headline",
            tests="""\
assert headline('the old man and the sea') == 'The Old Man and the Sea'
assert headline("it's late") == "It's Late"
assert headline('to be or not to be') == 'To Be or Not to Be'
assert headline('LIFE OF PI') == 'Life of Pi'
""",
        ),
        sampling=Sampling(temperature=0.0, max_tokens=400),
        max_turns=6,
        seed=0,
        **options,
    )


def regression(**options: Any) -> Episode:
    return refine(
        Task(
            "Write rounded(x): x as a whole number, halves rounded away from zero.",
            id="rounded",
            tests="""\
assert rounded(2.5) == 3
assert rounded(3.5) == 4
assert rounded(-2.5) == -3
assert rounded(2.4) == 2
assert rounded(0.49999999999999994) == 0
""",
        ),
        sampling=Sampling(temperature=0.0, max_tokens=300),
        max_turns=4,
        seed=0,
        **options,
    )


def saturation(**options: Any) -> Episode:
    return refine(
        Task(
            "Write seconds(text): how many seconds the length of time in text is.",
            id="seconds",
            tests="""\
assert seconds('90') == 90
assert seconds('2m') == 120
assert seconds('1h30m') == 5400
assert seconds('1:30') == 90
assert seconds('1:00:05') == 3605
assert seconds('1.5h') == 5400
""",
        ),
        history="window:900",
        rules=StopRule(max_sightings=4, escalate_at=4),
        sampling=Sampling(temperature=0.8, max_tokens=300),
        max_turns=5,
        seed=0,
        **options,
    )


def passing_but_wrong(*, record: Path, **options: Any) -> Episode:
    episode = refine(
        Task(
            "Write anagrams(a, b): whether two texts have the same letters. "
            "Case, blanks and punctuation do not count.",
            id="anagrams",
            tests="""\
assert anagrams('Listen', 'Silent')
assert anagrams('a gentleman', 'elegant man')
assert not anagrams('apple', 'papel!x')
""",
            hidden_tests="""\
assert anagrams('Dormitory', 'Dirty room!')
assert anagrams("I'm a dot in place", 'A decimal point')
assert not anagrams('aab', 'abb')
""",
            reference="""\
def anagrams(a, b):
    letters = [sorted(c for c in text.lower() if c.isalnum()) for text in (a, b)]
    return letters[0] == letters[1]
""",
        ),
        sampling=Sampling(temperature=0.0, max_tokens=400),
        max_turns=5,
        seed=0,
        record=record,
        **options,
    )
    return graded(episode, record)


def multi_step(**options: Any) -> Episode:
    return solve(
        Task("Which crop of the school garden brought most?", id="harvest"),
        data=path_of("multi-step").with_name("harvest.csv"),
        subtasks=[
            {
                "goal": "Read harvest.csv into the DataFrame `df`, with `date` as dates and `?` "
                "as a missing value.",
                "check": [
                    {"frame": "df", "rows": 15, "columns": ["date", "bed", "crop", "kg"]},
                    "df['date'].dt.month.tolist() == [5] * 10 + [6] * 5",
                    "df['kg'].sum() == 29.25",
                ],
            },
            {
                "goal": "Put the sum of kg of each crop into the Series `totals`.",
                "needs": 1,
                "check": ["len(totals) == 4", "totals['peas'] == 10", "totals['spinach'] == 5"],
            },
            {
                "goal": "Put the name of the crop with the largest total into `best`.",
                "needs": 2,
                "check": "totals[best] == totals.max()",
            },
        ],
        answer="value:best",
        temperature=0.6,
        max_tokens=300,
        max_attempts=4,
        max_replans=0,
        seed=0,
        **options,
    )


RECIPES: dict[str, Callable[..., Episode]] = {
    "cycle": cycle,
    "regression": regression,
    "saturation": saturation,
    "passing-but-wrong": passing_but_wrong,
    "multi-step": multi_step,
}


def main() -> None:
    model = resolve(MODEL, load=load)
    for name in sys.argv[1:] or RECIPES:
        place = path_of(name)
        print(name, flush=True)
        RECIPES[name](model=model, record=place, overwrite=True)
        refuse_places(place)
    text = "\n".join([HEAD, *(line(name) for name in EXAMPLES if path_of(name).exists())]) + "\n"
    print(text)
    readme = HERE / "README.md"
    readme.write_text(BLOCK.sub(lambda _: text, readme.read_text()))


def graded(episode: Episode, record: Path) -> Episode:
    """Put into a record what a grader says of what was accepted, as an evaluation does."""
    with Grader() as grader:
        grade = grader.grade(episode.task, episode.accepted[-1].code).result()
    episode = replace(episode, grade=GradeNote(grade.verdict, grade.passed, grade.total))
    save(episode, record)
    return episode


def refuse_places(record: Path) -> None:
    """Refuse a record that names a folder in which people or machines keep what is theirs."""
    found = re.search(
        r"(?<![\w.])/(home|root|tmp|work)/[\w.-]+", record.read_text(encoding="utf-8")
    )
    if found:
        raise SystemExit(f"{record} names {found[0]}; record it from an environment elsewhere")


HEAD = """\
| example | model | temperature | seed | turns | kB | ended | what became of each attempt |
|---|---|---|---|---|---|---|---|"""


def line(name: str) -> str:
    path = path_of(name)
    episode = load(path)
    assert episode.stop is not None
    cells = (
        f"[{name}](../nbrefine/examples/episodes/{path.name})",
        episode.model,
        episode.settings["temperature"],
        episode.seed,
        len(episode.turns),
        round(path.stat().st_size / 1000),
        episode.stop.reason,
        ", ".join(became(turn) for turn in episode.turns),
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
