"""Rejected attempts leave nothing: a session is what its accepted cells make of a fresh kernel.

Sequences of cells that work, fail, hang, crash and are refused by their tests run through the
environment.  Whatever they do to the state, the session must equal a clean replay of setup and
accepted cells, by a comparison that knows nothing of branches or digests.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from jupyter_client.manager import KernelManager

from nbrefine._portal import Run
from nbrefine.env import NotebookEnvironment
from nbrefine.env.points import Acceptance, Place, Point
from nbrefine.env.session import Session
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.digest import Snapshot, snapshot
from nbrefine.kernel.workspace.overlays import Workspace
from nbrefine.outputs import CellResult
from nbrefine.state import Action, State
from nbrefine.values import Isolation, Task, Turn
from tests.deep import compare

SEED = 11
LIMIT = 0.3
"""Seconds a cell may run."""

SETUP = """\
import decimal, os, random, signal, sys, types
import numpy as np

items = [1, 2]
same = items
nested = {"items": items, "n": 0}
array = np.arange(6.0)
view = array[1:4]
own, rng = random.Random(3), np.random.default_rng(5)
drawn, taken, orders, calls = [], [], [], []


def numbers():
    n = 0
    while True:
        n += 1
        yield n * 10


def counter():
    count = 0

    def step(by=1):
        nonlocal count
        count += by
        return count

    return step


stream, bump = numbers(), counter()


class Box:
    size = 1

    def area(self):
        return self.size


box = Box()
"""

STATEMENTS = (
    # in place, through aliases
    "items.append({n})",
    "same.insert(0, {n})",
    "nested['items'].extend(range({n}))",
    "nested['n'] += {n}",
    "nested['box'] = box; box.held = items",
    "view *= {n} + 1",
    "array[-1] += {n}",
    # aliases made and broken
    "same = list(same)",
    "items = nested['items'] = same",
    "view = array[:{n}]",
    # deleted; a second time it fails
    "del same",
    "del nested['items']",
    "items.pop()",
    # random numbers
    "drawn.append(random.random())",
    "drawn.append(float(np.random.rand()))",
    "drawn.append(float(rng.normal()))",
    "drawn.append(own.getrandbits(16))",
    "random.seed({n})",
    "rng = np.random.default_rng({n})",
    # what no pickle carries
    "taken.append(next(stream))",
    "taken.append(bump({n}))",
    "stream.close()",
    "calls.append(lambda x, by={n}: x * by)",
    "taken.extend(call(2) for call in calls)",
    # classes
    "class Box:\n    size = {n}\n    def area(self, by={n}):\n        return self.size * by",
    "Box.size += {n}",
    "box = Box(); box.side = {n}",
    "taken.append(box.area())",
    "box.__class__ = Box",
    # the order of a set, which the hash seed decides
    "orders.append(list({{'a', 'b', 'c', str({n})}}))",
    # the process
    "sys.modules['made_{n}'] = types.ModuleType('made_{n}')",
    "os.environ['MADE_{n}'] = str(len(items))",
    "os.environ.pop('MADE_{n}', None)",
    "os.chdir('..' if os.getcwd().endswith('below') else 'below')",
    "sys.path.insert(0, '/made/{n}')",
    # context variables, as which decimal and numpy keep their settings
    "np.set_printoptions(precision={n} + 1)",
    "decimal.getcontext().prec = {n} + 5",
)

FILES = (
    "_ = open('made.txt', 'a').write('{n}')",
    "os.replace('made.txt', 'moved.txt')",
    "os.remove('made.txt')",
    "os.makedirs('kept/{n}', exist_ok=True)",
    "_ = open('given.txt', 'r+').write('{n}')",
    "items.append(len(os.listdir()))",
)
"""Only where the host lets each branch have an overlay of the folder."""

OUTSIDE = """\
print(
    os.path.basename(os.getcwd()), sys.path[:3],
    np.get_printoptions()["precision"], decimal.getcontext().prec,
    sorted(name for name in sys.modules if name.startswith("made_")),
    sorted(pair for pair in os.environ.items() if pair[0].startswith("MADE_")),
)"""
"""What the statements change outside the namespace."""

ENDS = {
    "ok": "",
    "raises": "raise ValueError('on purpose')",
    "hangs": "while True: pass",
    "exits": "os._exit(3)",
    "crashes": "os.kill(os.getpid(), signal.SIGSEGV)",
}


@dataclass(frozen=True)
class Cell:
    """A cell, how it ends if its statements do not fail, and what its tests say then."""

    statements: tuple[str, ...]
    end: str = "ok"
    tests: str = ""

    @property
    def source(self) -> str:
        return "\n".join(filter(None, (*self.statements, ENDS[self.end])))

    @property
    def rejected(self) -> bool:
        """Whether it must not be accepted, whatever its statements do."""
        return self.end != "ok" or "False" in self.tests


def overlays() -> bool:
    """Tell whether branches have files of their own here."""
    with tempfile.TemporaryDirectory() as base:
        private = Path(base, "private")
        private.mkdir()
        return not Workspace(work_folder(Path(base)), private).reason


def cells(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Cell]:
    statements = st.builds(lambda text, n: text.format(n=n), texts, st.integers(0, 3))
    return st.builds(
        Cell,
        st.lists(statements, min_size=1, max_size=4).map(tuple),
        # Hanging costs its limit, so it is the rarest.
        st.sampled_from(
            ("ok", "ok", "ok", "ok", "ok", "raises", "raises", "hangs", "exits", "crashes")
        ),
        # Tests may dirty what they see: a branch of the attempt.
        st.sampled_from(
            (
                "",
                "",
                "items.append('of a test')\nassert True",
                "nested.clear()\n_ = open('t', 'w')\nassert False",
            )
        ),
    )


sequences = st.lists(
    cells(st.deferred(lambda: st.sampled_from(STATEMENTS + FILES * overlays()))),
    min_size=3,
    max_size=8,
)
inside = cells(st.sampled_from(STATEMENTS))
trees = st.lists(st.tuples(st.integers(0, 7), inside), min_size=4, max_size=9)
"""Cells, each with the number of the state that it begins from."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("transactions")


Live = Callable[[Path], AbstractContextManager[tuple[NotebookEnvironment, Kernel]]]
"""Gives an environment whose kernel works in a folder."""


def work_folder(base: Path) -> Path:
    """Make a new folder to work in; all have one name, as cells may look at it."""
    made = Path(tempfile.mkdtemp(dir=base)) / "work"
    (made / "below").mkdir(parents=True)
    (made / "given.txt").write_text("given")
    return made


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): "" if path.is_dir() else path.read_text()
        for path in folder.rglob("*")
    }


def started(folder: Path) -> Run[Kernel]:
    """Start a fresh kernel, quickly: it is forked from a template that has numpy imported."""
    return Kernel.start(seed=SEED, cwd=folder, preload=("numpy", "numpy.random"))


@contextmanager
def ours(folder: Path) -> Iterator[tuple[NotebookEnvironment, Kernel]]:
    """An environment whose attempts run in branches that take the session's place."""
    task = Task("t", setup=SETUP)
    with (
        started(folder) as kernel,
        NotebookEnvironment(task, kernel=kernel, timeout=LIMIT, max_turns=100) as env,
    ):
        yield env, kernel


@contextmanager
def foreign(folder: Path) -> Iterator[tuple[NotebookEnvironment, Kernel]]:
    """One whose accepted cells run again in a kernel that somebody else has started."""
    private = folder.parent
    manager = KernelManager(
        kernel_name="python3",
        connection_file=str(private / "kernel.json"),
        transport="ipc",
        ip=str(private / "c"),
    )
    environment = {**os.environ, "PYTHONHASHSEED": str(SEED), "OPENBLAS_NUM_THREADS": "1"}
    with (private / "log").open("w") as log:
        manager.start_kernel(stdout=log, stderr=log, env=environment, cwd=str(folder))
    task = Task("t", setup=SETUP)
    try:
        with (
            Kernel.connect(manager.connection_file) as kernel,
            NotebookEnvironment(task, kernel=kernel, timeout=LIMIT, max_turns=100) as env,
        ):
            yield env, kernel
    finally:
        manager.shutdown_kernel(now=True)


def play(sequence: list[Cell], base: Path, session: Live = ours) -> None:
    """Run a sequence and check what is claimed of it."""
    folder = work_folder(base)
    with session(folder) as (env, kernel):
        state = env.reset(seed=SEED)[0]
        for cell in sequence:
            state = take(env, state, cell)
            assert kernel.alive, kernel.death
            served = kernel.run("6 * 7").result()
            assert served.text == "42\n", served
        again = work_folder(base)
        assert_replays(kernel, state, again)
    assert content(folder) == content(again)


def take(
    env: NotebookEnvironment, state: State, cell: Cell, isolation: Isolation = "fork"
) -> State:
    """Take a step and check what the turn says of it."""
    state = env.step(asked(state, cell.tests), Action.from_code(cell.source)).next_state
    turn: Turn = state.hidden.episode.turns[-1]
    assert turn.isolation == isolation, turn.isolation_reason
    assert turn.result is not None
    assert turn.accepted == (turn.result.ok and not cell.rejected), cell.source
    if cell.end == "hangs" and turn.result.error is None:
        assert turn.result.status == "timeout"
    return state


def assert_replays(live: Kernel, state: State, folder: Path) -> None:
    """Check that a kernel has what a fresh one has after a state's accepted cells."""
    episode = state.hidden.episode
    with started(folder) as fresh:
        for source in (episode.setup.source, *(turn.code for turn in episode.accepted)):
            replayed = fresh.run(source).result()
            assert replayed.ok, replayed.error
        assert live.run(OUTSIDE).result().text == fresh.run(OUTSIDE).result().text
        assert compare(live, fresh) == []


def asked(state: State, tests: str) -> State:
    """Ask for one more step, with tests of its own, as a plan of several steps does."""
    episode = state.hidden.episode
    episode = replace(episode, stop=None, task=replace(episode.task, tests=tests))
    return replace(state, hidden=replace(state.hidden, episode=episode))


MUTATED = Cell(("items.append(1)",), "raises")
"""The smallest rejected cell that matters: it changes a list in place, then fails."""

many = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # a failing sequence is short enough to be read
    suppress_health_check=[HealthCheck.too_slow],
)


@pytest.mark.slow
@pytest.mark.timeout(300)
@many
@given(sequence=sequences)
@example(sequence=[MUTATED, Cell(("items.append(2)",))])
@example(
    sequence=[
        Cell(("drawn.append(random.random())", "taken.append(next(stream))"), "hangs"),
        Cell(("drawn.append(random.random())", "taken.append(next(stream))")),
        Cell(("drawn.append(float(rng.normal()))", "taken.append(bump(2))"), "crashes"),
        Cell(("drawn.append(float(rng.normal()))", "taken.append(bump(2))")),
        Cell(("del same", "os.chdir('below')", "sys.path.insert(0, '/made/1')"), "exits"),
        Cell(("same.append(3)",), tests="nested.clear()\nassert False"),
        Cell(("same.append(4)",), tests="items.append('of a test')\nassert True"),
    ]
)
def test_a_session_equals_a_clean_replay_of_its_accepted_cells(
    base: Path, sequence: list[Cell]
) -> None:
    play(sequence, base)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(many, max_examples=4)
@given(sequence=st.lists(inside, min_size=3, max_size=6))
@example(sequence=[MUTATED, Cell(("items.append(2)",))])
def test_a_kernel_of_somebody_else_s_has_what_its_accepted_cells_make(
    base: Path, sequence: list[Cell]
) -> None:
    play(sequence, base, foreign)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(many, max_examples=4)
@given(sequence=st.lists(inside, min_size=3, max_size=6))
@example(sequence=[MUTATED, Cell(("items.append(2)",), tests="items.clear()\nassert True")])
def test_a_session_without_branches_is_built_again_from_its_accepted_cells(
    base: Path, sequence: list[Cell]
) -> None:
    """Its files are not held back, so that nothing is claimed of them."""
    task, folder = Task("t", setup=SETUP), work_folder(base)
    with NotebookEnvironment(
        task, isolation="rebuild", rebuild_limit=100, cwd=folder, timeout=LIMIT, max_turns=100
    ) as env:
        state = env.reset(seed=SEED)[0]
        for cell in sequence:
            state = take(env, state, cell, "rebuild")
        env.settle(state)
        assert env._session is not None
        assert_replays(env._session.kernel, state, work_folder(base))


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(many, max_examples=10)
@given(steps=trees)
@example(steps=[(0, Cell(("items.append(1)",))), (0, MUTATED), (0, Cell(("items.append(2)",)))])
def test_any_state_can_be_stepped_and_gone_back_to(
    base: Path, steps: list[tuple[int, Cell]]
) -> None:
    """States branch off each other like a tree; each stays what its own accepted cells make."""
    folder = work_folder(base)
    task = Task("t", setup=SETUP)
    with (
        started(folder) as kernel,
        NotebookEnvironment(task, kernel=kernel, timeout=LIMIT, max_turns=100) as env,
    ):
        states = [env.reset(seed=SEED)[0]]
        for number, cell in steps:
            states.append(take(env, states[number % len(states)], cell))
        for state in (states[-1], states[0], states[len(states) // 2]):
            env.settle(state)
            assert_replays(kernel, state, work_folder(base))


class InTheTrunk(Session):
    """A session whose attempts run in its own kernel, and which says that they are forked."""

    async def begin(self, point: Point) -> Place:
        seen = await snapshot(self.kernel.core)
        return Place(self.kernel, "fork", "", self.kernel.epoch, seen)

    async def accept(
        self,
        place: Place,
        point: Point,
        result: CellResult,
        seen: Snapshot,
        *,
        tested: bool,
        timeout: float | None,  # noqa: ASYNC109 - as in what it replaces
        tentative: bool = False,
    ) -> Acceptance:
        self.track.arrive(Point((*point.accepted, result.source), point.seconds))
        return Acceptance(self.here)

    def reject(self, place: Place) -> None:
        pass


@pytest.mark.slow
def test_the_property_finds_attempts_that_run_in_the_session_itself(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without branches the same property fails, and at the smallest example already."""
    monkeypatch.setattr("nbrefine.env.live.Session", InTheTrunk)
    with pytest.raises(AssertionError):
        play([MUTATED], base)

    @many
    @given(sequence=sequences)
    def every_sequence(sequence: list[Cell]) -> None:
        play(sequence, base)

    with pytest.raises(AssertionError):
        every_sequence()
