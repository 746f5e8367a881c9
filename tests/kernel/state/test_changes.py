"""What a cell changed is told per name, and rebinding a name to an equal value is no change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine._portal import Run
from nbrefine.bindings import Binding, NameChange, NameDigest, StateChange, StateDigest
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.changes import changes, describe, differences, lately, moves
from nbrefine.kernel.state.digest import Snapshot, snapshot


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    shared_kernel.run("%reset -f\nimport random\nrandom.seed(0)").result()
    return shared_kernel


def taken(kernel: Kernel, source: str) -> Snapshot:
    result = kernel.run(source).result()
    assert result.ok, result.text
    return Run(snapshot(kernel.core)).result()


def test_new_changed_and_deleted_names_are_told_with_what_they_were(kernel: Kernel) -> None:
    before = taken(kernel, "prices = [1, 2, 3]\ntmp = 1\nsame = [1]\nn = 3\ngrid = {'a': 1}")
    after = taken(
        kernel,
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})\n"
        "prices.append(4)\ndel tmp\nsame = [1]\nn = 'three'\ngrid['a'] = 2\ndef area(r): ...",
    )
    change = changes(before, after)
    assert change.new == ("pd", "df", "area")
    assert change.changed == ("prices", "n", "grid")
    assert change.deleted == ("tmp",)
    assert change.names[0] == NameChange(
        "prices",
        Binding("list", shape=(3,), preview="[1, 2, 3]"),
        Binding("list", shape=(4,), preview="[1, 2, 3, 4]"),
    )
    grid = "grid dict of length 1 {'a': 1} -> {'a': 2}"
    assert (change.random, change.sharing, change.partly) == (False, False, ())
    assert describe(change).splitlines() == [
        "new: pd module pandas; df DataFrame 2 rows x 2 columns; area function (r)",
        f"changed: prices list of length 3 -> 4; n int 3 -> str 'three'; {grid}",
        "deleted: tmp",
    ]


def test_another_dtype_is_told_with_what_it_was(kernel: Kernel) -> None:
    before = taken(
        kernel,
        "import numpy as np, pandas as pd\nxs = np.arange(3)\ns = pd.Series([1, 2])\n"
        "df = pd.DataFrame({'a': [1, 2], 'b': [1, 2], 'c': [1, 2]})\ngrown = df.copy()\n"
        "wide = pd.DataFrame({f'c{n}': [n] for n in range(5)})",
    )
    after = taken(
        kernel,
        "xs = xs.astype(float)\ns = s.astype('int32')\ndf['b'] = [1.5, 2.0]\ndf['c'] = [3, 4]\n"
        "grown = pd.concat([grown, grown[:1]]).astype({'a': float, 'b': float})\n"
        "wide = wide.astype('float32')",
    )
    grown = "a float64, was int64, and b float64, was int64"
    wide = ", and ".join(f"c{n} float32, was int64" for n in range(3))
    told = describe(changes(before, after), limit=3000)
    assert told.removeprefix("changed: ").split("; ") == [
        "xs ndarray of length 3: float64, was int64",
        "s Series of length 2: int32, was int64",
        "df DataFrame 2 rows x 3 columns: b float64, was int64",
        f"grown DataFrame 2 rows x 3 columns -> 3 rows x 3 columns: {grown}",
        f"wide DataFrame 1 rows x 5 columns: {wide}, and 2 more with other dtypes",
    ]
    assert moves(changes(before, after))[0] == "xs has another value: float64, was int64"
    found = differences(before.digest, after.digest)
    assert found[0] == "xs has another value: float64, was int64"
    assert found[2] == "df has another value: b float64, was int64"
    unknown = [replace(name, dtypes="") for name in before.digest.names]
    earlier = replace(before.digest, names=tuple(unknown))
    assert differences(earlier, after.digest)[0] == "xs has another value"


def test_a_change_through_an_alias_shows_in_every_name_that_has_it(kernel: Kernel) -> None:
    before = taken(kernel, "inner = [1]\na = {'k': inner}\nb = (inner,)\nc = [1]")
    assert changes(before, taken(kernel, "inner.append(2)")).changed == ("inner", "a", "b")


def test_a_copy_in_the_place_of_an_alias_is_a_change_of_sharing(kernel: Kernel) -> None:
    before = taken(kernel, "a = [1]\nb = a")
    after = taken(kernel, "b = [1]")
    assert changes(before, after) == StateChange(sharing=True)
    assert differences(before.digest, after.digest) == ("other names share an object",)


def test_drawn_random_numbers_are_a_change(kernel: Kernel) -> None:
    before = taken(kernel, "pass")
    after = taken(kernel, "_ = random.random()")
    assert changes(before, after) == StateChange(random=True)
    assert describe(changes(before, after)) == "the random generators' states changed"


def test_names_that_were_not_seen_whole_are_not_said_to_be_unchanged(kernel: Kernel) -> None:
    before = taken(kernel, "gen = iter(())\ngen = (i for i in 'ab')\nlist_ = [1]")
    assert changes(before, taken(kernel, "next(gen)")) == StateChange(partly=("gen",))


def test_a_table_with_other_content_is_told_without_its_rows(kernel: Kernel) -> None:
    before = taken(kernel, "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2]})")
    after = taken(kernel, "df['a'] *= 2")
    assert (
        describe(changes(before, after))
        == "changed: df DataFrame 2 rows x 1 columns, other content"
    )
    after = taken(kernel, "df = df[df.a > 2]")
    assert describe(changes(before, after)) == (
        "changed: df DataFrame 2 rows x 1 columns -> 1 rows x 1 columns"
    )


def test_the_same_cells_in_another_kernel_make_no_difference(kernel: Kernel) -> None:
    source = "a = {'x', 'y'}\nclass A: n = 1\nb = [A(), a]"
    first = taken(kernel, source)
    with Kernel.start(seed=9) as other:
        assert (
            differences(
                first.digest, taken(other, f"import random\nrandom.seed(0)\n{source}").digest
            )
            == ()
        )
        second = taken(other, "A.n = 2\ndel a\nc = 1")
    assert differences(first.digest, second.digest) == (
        "A has another value",
        "b has another value",
        "c should not be there",
        "a is missing",
    )


def test_bare_digests_are_compared_without_previews() -> None:
    first = StateDigest("1", (NameDigest("a", "list", "x", (3,)), NameDigest("b", "int", "y")))
    second = replace(first, hash="2", names=(NameDigest("a", "list", "z", (4,)), first.names[1]))
    assert changes(first, second).names == (
        NameChange("a", Binding("list", shape=(3,)), Binding("list", shape=(4,))),
    )
    assert differences(first, second) == ("a is list of length 4, not list of length 3",)
    assert differences(first, first) == ()


def test_a_name_that_was_not_looked_at_is_compared_by_its_type_alone() -> None:
    """Time is a matter of chance: what was not reached the second time need not have changed."""
    others = (NameDigest("b", "list", "y", (5,)), NameDigest("n", "int", "z"))
    seen = StateDigest("1", (NameDigest("a", "list", "x", (5,)), *others), shared=(("a", "b"),))
    unseen = StateDigest("2", (NameDigest("a", "list", unseen="no time was left for it"), *others))
    for first, second in ((seen, unseen), (unseen, seen)):
        assert changes(first, second) == StateChange(partly=("a",))
        assert differences(first, second) == ()
    retyped = replace(unseen, names=(replace(unseen.names[0], type="Slow"), *others))
    assert differences(seen, retyped) == ("a is Slow, not list of length 5",)


def test_a_value_that_is_too_slow_for_the_digest_makes_no_difference(kernel: Kernel) -> None:
    """The second look meets a property that holds it up, and the same objects are shared."""
    source = """
import numpy as np
class Slow(np.ndarray):
    @property
    def shape(self):
        while waiting: pass
        return np.ndarray.shape.__get__(self)
waiting = []
data = np.zeros(3)
x = data.view(Slow)
"""
    before = taken(kernel, source).digest
    assert before.shared == (("data", "x"),)
    after = taken(kernel, "waiting.append(1)").digest
    assert [told.name for told in after.names if told.unseen] == ["x"]
    assert differences(before, after) == ("waiting is list of length 1, not list of length 0",)


def test_the_description_keeps_its_limit_and_counts_what_it_leaves_out() -> None:
    many = StateChange(
        tuple(NameChange(f"value_{n}", None, Binding("int", preview="1")) for n in range(100))
    )
    told = describe(many, limit=300)
    assert told == (
        "new: value_0 int 1; value_1 int 1; value_2 int 1; value_3 int 1; value_4 int 1 and 95 more"
    )
    assert describe(StateChange()) == ""


def test_what_was_bound_or_changed_lately_is_named_newest_first() -> None:
    one, two = Binding("int", preview="1"), Binding("int", preview="2")
    first = StateChange((NameChange("a", None, one), NameChange("b", None, one)))
    second = StateChange(
        (NameChange("c", None, one), NameChange("a", one, two), NameChange("gone", one))
    )
    assert lately([second, None, first]) == ("a", "c", "b")
