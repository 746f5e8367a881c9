"""Equal states have equal digests in any process, other states others, and looking harms nobody."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbrefine._portal import Run
from nbrefine.bindings import NameDigest, StateDigest
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.digest import EMPTY, digest, snapshot
from tests.kernel.state.differing import CODE, FRAME, PANDAS, PLAIN, TABLES

SEEDING = "import random\nrandom.seed(5)\nimport numpy as np\nnp.random.seed(5)"


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Kernel, Kernel]]:
    """Two kernels that order their sets differently."""
    with Kernel.start(seed=1) as first, Kernel.start(seed=2) as second:
        orders = [
            kernel.run("list('abcdefgh'), list(set('abcdefgh'))").result().text
            for kernel in (first, second)
        ]
        assert orders[0] != orders[1]
        yield first, second


@pytest.fixture
def kernel(two: tuple[Kernel, Kernel]) -> Kernel:
    two[0].run("%reset -f").result()
    return two[0]


def state(kernel: Kernel, source: str = "", *, anew: bool = False) -> StateDigest:
    if source:
        result = kernel.run(f"%reset -f\n{SEEDING}\n{source}" if anew else source).result()
        assert result.ok, result.text
    return Run(digest(kernel.core)).result()


def told(kernel: Kernel, source: str, name: str) -> NameDigest:
    return {told.name: told for told in state(kernel, source, anew=True).names}[name]


@pytest.mark.parametrize(("source", "change"), [*PLAIN, *CODE, *TABLES, *PANDAS])
def test_equal_states_are_equal_anywhere_and_every_change_shows(
    two: tuple[Kernel, Kernel], source: str, change: str
) -> None:
    first, second = ([state(kernel, source, anew=True), state(kernel, change)] for kernel in two)
    assert first == second
    built, changed = first
    assert built.hash != changed.hash
    assert built.partly == ()


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sets(st.text(max_size=3) | st.integers() | st.tuples(st.text(max_size=2)), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)
MANY = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def exactly(value: object) -> str:
    """Spell a value so that two are spelled alike exactly if they are the same to the last bit."""
    if isinstance(value, float):
        return f"f{struct.pack('d', value).hex()}"
    if isinstance(value, set):
        return f"{{{sorted(map(exactly, value))}}}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}{[exactly(item) for item in value]}"
    if isinstance(value, dict):
        return f"{{{[(exactly(key), exactly(item)) for key, item in value.items()]}}}"
    return ascii(value)


@given(VALUES, VALUES)
@MANY
def test_values_have_the_same_hash_exactly_if_they_are_the_same(
    two: tuple[Kernel, Kernel], a: object, b: object
) -> None:
    source = (
        f"import pickle\na = pickle.loads({pickle.dumps(a)!r})\n"
        f"b = pickle.loads({pickle.dumps(b)!r})"
    )
    states = [state(kernel, source, anew=True) for kernel in two]
    assert states[0] == states[1]
    hashes = {name.name: name.hash for name in states[0].names}
    assert (hashes["a"] == hashes["b"]) == (exactly(a) == exactly(b))


def test_making_the_same_state_again_gives_the_same_digest(kernel: Kernel) -> None:
    before = state(kernel, FRAME, anew=True)
    assert state(kernel) == before
    assert state(kernel, f"del x\n{SEEDING}{FRAME}") == before


def test_reading_and_rearranging_a_frame_is_no_change(kernel: Kernel) -> None:
    source = """
import pandas as pd
x = pd.concat([pd.Series(range(4), name=n) for n in 'abc'], axis=1)
for n in 'de':
    x[n] = 0.5
t = pd.Series(['a', None] * 3)
"""
    before = state(kernel, source, anew=True)
    reading = (
        "x.describe(), x.to_numpy(), x.mean(), str(x), x.index.is_unique, t.str.upper(), hash(t[0])"
    )
    assert state(kernel, reading) == before
    copied = """
x = pd.DataFrame({n: x[n].to_numpy().copy() for n in x})
t = pd.concat([pd.Series(['a', None]), pd.Series(['a', None] * 2)], ignore_index=True)
"""
    assert state(kernel, copied) == before


def test_a_large_table_is_sampled_evenly_and_says_so(kernel: Kernel) -> None:
    source = "import pandas as pd\nx = pd.DataFrame(np.zeros((400_000, 5)))\ny = x.head(9)"
    names = {name.name: name for name in state(kernel, source, anew=True).names}
    before = names["x"]
    assert (before.sampled, before.whole, before.shape) == (True, False, (400_000, 5))
    assert names["y"].whole
    for change in (
        "x.iloc[0, 0] = 1",
        "x.iloc[-1, 4] = 1",
        "x.iloc[100_000:104_000, 2] = 1",
        "x.loc[400_000] = 0",
        "x[5] = 0",
    ):
        assert told(kernel, f"{source}\n{change}", "x").hash != before.hash, change


def test_a_sample_is_the_same_items_however_an_array_lies_in_memory(kernel: Kernel) -> None:
    first = "x = np.arange(3_000_000.0).reshape(1_500, 2_000).copy()"
    hashes = {
        told(kernel, f"{first}\n{layout}", "x").hash
        for layout in ("", "x = np.asfortranarray(x)", "x = np.repeat(x, 2, axis=1)[:, ::2].copy()")
    }
    assert len(hashes) == 1
    column = "x = np.arange(3_000_000.0)"
    spaced = "x = pd.Series(np.repeat(x, 3).reshape(-1, 3)[:, 1])"
    series = (f"{column}\nx = pd.Series(x)", f"{column}\n{spaced}")
    assert len({told(kernel, f"import pandas as pd\n{each}", "x").hash for each in series}) == 1


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("x = [{'i': i, 't': str(i)} for i in range(100_000)]", "x[-1]['i'] = 0"),
        ("x = list(range(600_000))", "x[0] = 5"),
        ("x = [[[j] for j in range(300)] for i in range(300)]", "x[150].append(1)"),
        ("x = {i: [i] for i in range(100_000)}", "x[100_000] = 1"),
        ("x = ['y' * 900] * 30_000", "x[5] = 'z'"),
        ("x = 'y' * 20_000_000", "x = 'z' + x[1:]"),
        ("x = {str(i) for i in range(60_000)}", "x.add('more')"),
        ("x = {(i, str(i)) for i in range(2_000)}", "x.add((0, 'more'))"),
        ("x = np.array([[i] for i in range(100_000)] + [None], dtype=object)", "x[0].append(1)"),
        ("import pandas as pd\nx = pd.Series([f'row {i}' for i in range(900_000)])", "x[0] = ''"),
    ],
)
def test_what_is_too_much_is_sampled_alike_in_every_process(
    two: tuple[Kernel, Kernel], source: str, change: str
) -> None:
    states = []
    for kernel in two:
        before = told(kernel, source, "x")
        after = {name.name: name for name in state(kernel, change).names}["x"]
        assert (before.sampled, after.sampled) == (True, True)
        assert before.hash != after.hash
        states.append((before, after))
    assert states[0] == states[1]


def test_private_names_count_and_those_of_ipython_do_not(kernel: Kernel) -> None:
    """What a function reads of a private name decides what it gives."""
    source = "_rate = 2\n__deep = [1]\n_private = __deep\ndef price(n): return n * _rate"
    before = state(kernel, source, anew=True)
    names = ["random", "np", "_rate", "__deep", "_private", "price"]
    assert [name.name for name in before.names] == names
    assert before.shared == (("__deep", "_private"),)
    kernel.run("1 + 1").result()
    kernel.run("!true\nfor _ in 'ab': ...\n__note__ = _oh, _ih, _i1, _exit_code").result()
    assert state(kernel) == before
    assert state(kernel, "_rate = 3").hash != before.hash


def test_a_class_that_only_another_class_speaks_of_is_named(kernel: Kernel) -> None:
    """It counts by its name there, which is all that is needed while a name of its own shows it."""
    source = "class A: n = 1\nclass B:\n    a = A\n    def f(self): return self.a.n\nb = B()"
    with_a = state(kernel, source, anew=True)
    assert with_a.partly == ()
    alone = state(kernel, "del A")
    assert {name.name: name.opaque for name in alone.names if name.opaque} == {
        "B": ("A",),
        "b": ("A",),
    }
    assert state(kernel, "one = B.a()").partly == ()


def test_names_that_share_an_object_are_told(kernel: Kernel) -> None:
    source = """
inner = [1]
outer = {'deep': [inner]}
array = np.arange(5)
view = array[1:3]
alone = [1]
class A:
    items = inner
    def f(self): ...
one, two = A(), A()
text = other = 'immutable'
"""
    assert state(kernel, source, anew=True).shared == (
        ("A", "inner", "one", "outer", "two"),
        ("array", "view"),
    )
    change = "outer['deep'][0] = [1]\nview = view.copy()\ndel A, one"
    assert state(kernel, change).shared == (("inner", "two"),)


def test_generators_locks_connections_and_widgets_count_by_their_class(kernel: Kernel) -> None:
    source = """
import sqlite3, threading
from types import SimpleNamespace
import ipywidgets
gen = (i for i in range(3))
lock = threading.Lock()
base = sqlite3.connect(':memory:')
box = SimpleNamespace(lock=lock, n=1)
slider = ipywidgets.IntSlider()
file = open(__import__('os').devnull)
"""
    names = {name.name: name for name in state(kernel, source, anew=True).names}
    opaque = {name.name: name.opaque for name in names.values() if name.opaque}
    assert opaque == {
        "gen": ("generator",),
        "lock": ("lock",),
        "base": ("Connection",),
        "box": ("lock",),
        "slider": ("IntSlider",),
        "file": ("TextIOWrapper",),
    }
    after = {name.name: name for name in state(kernel, "box.n = 2\nslider.value = 7").names}
    assert after["box"].hash != names["box"].hash
    assert after["slider"].hash == names["slider"].hash
    assert kernel.run("list(gen)").result().text == "[0, 1, 2]\n"


HOSTILE = """
ran = []
def trap(*args, **kwargs):
    ran.append(1)
    raise RuntimeError('ran')
NAMES = ('__eq__ __hash__ __repr__ __str__ __reduce__ __reduce_ex__ __getstate__ __len__ __iter__ '
    '__bool__ __getattr__ __getattribute__ __contains__ __getitem__ __index__ __sizeof__ __dir__ '
    '__array__ __fspath__ keys values items copy').split()
body = dict.fromkeys(NAMES, trap)
class Meta(type): pass
for name in ('__eq__', '__hash__', '__repr__', '__getattribute__', '__instancecheck__', '__iter__'):
    setattr(Meta, name, {'__hash__': lambda cls: 7}.get(name, trap))
plain = type('Plain', (), {**body, '__class__': property(trap), '__slots__': ('v', '__dict__')})
plain_kinds = (list, dict, tuple, int, str, bytes)
bases = [type('B' + base.__name__, (base,), dict(body)) for base in plain_kinds]
values = [base.__new__(base) for base in bases]
odd = Meta('Odd', (), {})
odd_one = object.__new__(odd)
plain_one = object.__new__(plain)
ran.clear()
"""


def test_no_code_of_the_session_runs(kernel: Kernel) -> None:
    digest_of = state(kernel, HOSTILE, anew=True)
    assert kernel.run("ran").result().text == "[]\n"
    assert [name.name for name in digest_of.names if name.unseen or name.opaque] == []
    assert state(kernel) == digest_of


def test_a_value_that_takes_for_ever_is_named_and_the_others_are_told(kernel: Kernel) -> None:
    source = """
import numpy as np
class Slow(np.ndarray):
    @property
    def shape(self):
        while True: pass
x = np.zeros(3).view(Slow)
y = 1
"""
    names = {name.name: name for name in state(kernel, source, anew=True).names}
    assert names["x"].unseen == "took over 2 s"
    assert (names["y"].unseen, names["y"].hash != "") == ("", True)


def test_the_digest_needs_no_module_that_the_session_has_not_loaded(kernel: Kernel) -> None:
    kernel.restart().result()
    loaded = "import sys\nsorted({'numpy', 'pandas', 'polars', 'pyarrow'} & set(sys.modules))"
    before = kernel.run(loaded).result().text
    state(kernel, "x = [1]")
    assert kernel.run(loaded).result().text == before


def test_a_branch_has_the_digest_of_its_kernel_until_it_changes(kernel: Kernel) -> None:
    before = state(kernel, f"{FRAME}\nrows = [{{'x': x}}]\ngen = (row for row in rows)", anew=True)
    with kernel.branch().result() as trial:
        assert state(trial) == before
        assert state(trial, "rows[0]['x'].loc[0, 'n'] = 7").hash != before.hash
    assert state(kernel) == before


def test_a_snapshot_is_digest_and_listing_at_once(kernel: Kernel) -> None:
    state(kernel, "x = [1, 2]\ndef f(a): ...\nn = 'text'", anew=True)
    taken = Run(snapshot(kernel.core)).result()
    assert taken.digest == state(kernel)
    assert taken.variables == kernel.variables().result()
    assert [(name.name, name.shape) for name in taken.digest.names] == [
        (variable.name, variable.shape) for variable in taken.variables
    ]


def test_a_kernel_of_another_language_has_no_digest(bash_kernel: str) -> None:
    with Kernel.start(bash_kernel) as kernel:
        assert Run(digest(kernel.core)).result() == EMPTY
