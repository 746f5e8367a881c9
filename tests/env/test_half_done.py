"""What a failed attempt had done before it failed is never there for the next one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbrefine.env import MultiStepEnvironment
from nbrefine.postconditions import holds
from nbrefine.state import Action, State
from nbrefine.values import Episode, Subtask, Task, Turn

SETUP = """\
import decimal, math, os, random, sys
import numpy as np
import pandas as pd

class Thing:
    kind = "first"

df = pd.DataFrame({"a": [3, 1, 2], "b": list("xyz")})
view = df["a"]
array = np.arange(4.0)
items, nested, pairs = [1, 2], {"k": [1], "m": {2}}, {(1, 2): "x"}
alias = items
thing = Thing()
numbers = (n for n in range(9))
next(numbers)
with open("data.txt", "w") as file:
    file.write("some words")
handle = open("data.txt")
handle.read(2)
log = open("log.txt", "a")
log.write("begun")
log.flush()
random.seed(4)
np.random.seed(4)
"""

PROBE = """\
print(repr((
    df.to_dict("list"), view.tolist(), df.index.tolist(), array.tolist(), items, alias is items,
    nested, pairs, vars(thing), Thing.kind, next(numbers), math.pi, hasattr(math, "extra"),
    os.environ.get("NBREFINE_TEST"), len(sys.path), decimal.getcontext().prec, os.getcwd(),
    {path: open(path).read() for path in sorted(os.listdir(".")) if os.path.isfile(path)},
    sorted(os.listdir(".")), handle.read(), log.tell(), random.random(), np.random.rand(),
    sorted(name for name in globals() if name.startswith("new_")),
)))
raise RuntimeError("looked")
"""

MUTATIONS = (
    "df.loc[0, 'a'] = -1",
    "df.drop(columns='b', inplace=True)",
    "df['c'] = 1",
    "df.sort_values('a', inplace=True)",
    "df.index = [7, 8, 9]",
    "array[:] = 0",
    "array.sort(); array.resize((2, 2), refcheck=False)",
    "items.append(4)",
    "items.clear()",
    "items = None",
    "del alias",
    "nested['k'].append(2)",
    "nested['m'].clear(); nested.pop('k')",
    "pairs[1, 2] = pairs",
    "thing.value = 9",
    "Thing.kind = 'second'",
    "next(numbers)",
    "numbers.close()",
    "math.pi = 3",
    "math.extra = 1",
    "os.environ['NBREFINE_TEST'] = 'set'",
    "sys.path.append('/nowhere')",
    "decimal.getcontext().prec = 3",
    "random.seed(1); np.random.seed(1)",
    "open('data.txt', 'a').write('more')",
    "open('data.txt', 'w').close()",
    "os.remove('data.txt')",
    "os.rename('data.txt', 'other.txt')",
    "open('fresh.txt', 'w').write('new')",
    "os.makedirs('sub/deep')",
    "handle.read(3)",
    "handle.close()",
    "log.write('more'); log.flush()",
    "os.chdir('/')",
    "new_name = 1",
)

ENDINGS = ("1 / 0", "raise KeyboardInterrupt", "done = False", "os._exit(3)", "exit()")


def cell(code: str) -> Action:
    return Action.from_text(f"```python\n{code}\n```")


def newest(state: State) -> Turn:
    episode: Episode = state.hidden.episode
    return episode.turns[-1]


def probed(env: MultiStepEnvironment, state: State) -> str:
    """Give all that the next attempt finds, in a cell that is rejected too."""
    turn = newest(env.step(state, cell(PROBE)).next_state)
    assert turn.result is not None
    assert str(turn.result.error) == "RuntimeError: looked"
    return turn.result.text.splitlines()[0]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MultiStepEnvironment, State]]:
    task = Task("t", setup=SETUP, subtasks=(Subtask("s", postconditions=(holds("done"),)),))
    folder: Path = tmp_path_factory.mktemp("work")
    with MultiStepEnvironment(task, cwd=folder, workspace="overlay") as env:
        yield env, env.reset(seed=0)[0]


@pytest.fixture(scope="module")
def untouched(begun: tuple[MultiStepEnvironment, State]) -> str:
    return probed(*begun)


@given(st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=8), st.sampled_from(ENDINGS))
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_nothing_that_a_failed_attempt_did_is_there_for_the_next_one(
    begun: tuple[MultiStepEnvironment, State],
    untouched: str,
    mutations: list[str],
    ending: str,
) -> None:
    env, start = begun
    # One that cannot be done any more, after others, does not keep the rest from being done.
    lines = [f"try:\n    {each}\nexcept Exception:\n    pass" for each in mutations]
    failed = env.step(start, cell("\n".join([*lines, ending]))).next_state
    assert not newest(failed).accepted
    assert newest(failed).isolation == "fork"
    assert probed(env, failed) == untouched


def test_each_of_these_changes_something_that_the_next_attempt_would_see(
    begun: tuple[MultiStepEnvironment, State], untouched: str
) -> None:
    env, start = begun
    for mutation in MUTATIONS:
        turn = newest(env.step(start, cell(f"{mutation}\n{PROBE}")).next_state)
        assert turn.result is not None
        assert turn.result.text.splitlines()[0] != untouched, mutation
