"""Variables copied by value from one real kernel into another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from nbrefine._portal import Run
from nbrefine.kernel import Kernel
from nbrefine.kernel.state.transfer import Copied, copy_variables


@pytest.fixture(scope="module")
def kernels() -> Iterator[tuple[Kernel, Kernel]]:
    with Kernel.start() as source, Kernel.start() as target:
        yield source, target


def copied(kernels: tuple[Kernel, Kernel], names: Sequence[str], **settings: Any) -> Copied:
    source, target = kernels
    return Run(copy_variables(source.core, target.core, names, **settings)).result()


def test_what_two_variables_share_is_shared_in_the_copy(kernels: tuple[Kernel, Kernel]) -> None:
    source, target = kernels
    source.run("part = [1]; whole = {'a': part, 'b': part}").result()
    told = copied(kernels, ["part", "whole"])
    assert list(told.sizes) == ["part", "whole"]
    assert told.failed == {}
    shown = target.run("part.append(2); whole['a'] is whole['b'] is part, whole").result().text
    assert shown == "(True, {'a': [1, 2], 'b': [1, 2]})\n"
    assert source.run("whole").result().text == "{'a': [1], 'b': [1]}\n"


def test_what_cannot_be_copied_is_named_and_the_rest_arrives(
    kernels: tuple[Kernel, Kernel],
) -> None:
    source, target = kernels
    source.run("first = 'a'; steps = (n for n in [1]); last = [first]").result()
    told = copied(kernels, ["first", "steps", "missing", "last"])
    assert list(told.sizes) == ["first", "last"]
    assert list(told.failed) == ["steps", "missing"]
    assert "generator" in told.failed["steps"]
    assert str(told) == (
        f"copied by value: first, last; could not be copied: steps ({told.failed['steps']}); "
        "missing (there is no such name)"
    )
    assert target.run("last[0] is first").result().text == "True\n"


def test_what_cannot_be_read_is_named_and_shifts_no_reference(
    kernels: tuple[Kernel, Kernel],
) -> None:
    source, target = kernels
    source.run(
        "class Trap:\n"
        "    def __reduce__(self):\n"
        "        return int, ('no number',)\n"
        "shared = [7]; trap = [shared, Trap(), shared]; after = [shared, shared]"
    ).result()
    told = copied(kernels, ["trap", "after"])
    assert list(told.sizes) == ["after"]
    assert "no number" in told.failed["trap"]
    assert target.run("after, after[0] is after[1], 'trap' in dir()").result().text == (
        "([[7], [7]], True, False)\n"
    )


def test_a_variable_above_the_limit_is_named(kernels: tuple[Kernel, Kernel]) -> None:
    source, target = kernels
    source.run("small = 1; large = bytes(2000); tiny = 2").result()
    target.run("large = 'kept'").result()
    told = copied(kernels, ["small", "large", "tiny"], limit=1000)
    assert list(told.sizes) == ["small", "tiny"]
    assert told.failed == {"large": "the variables take more than 1,000 bytes"}
    assert target.run("large").result().text == "'kept'\n"


def test_nothing_is_copied_where_all_is_wanted_and_one_cannot_be(
    kernels: tuple[Kernel, Kernel],
) -> None:
    """The large one, which comes last, is not even written: pickling it would leave a mark."""
    source, target = kernels
    source.run(
        "class Slow:\n"
        "    def __reduce__(self):\n"
        "        written.append(1)\n"
        "        return list, ()\n"
        "written = []; table = [Slow(), Slow()]; stream = (n for n in [1])"
    ).result()
    told = copied(kernels, ["table", "stream"], every=True)
    assert told.sizes == {}
    assert list(told.failed) == ["stream"]
    assert source.run("written").result().text == "[]\n"
    assert "'table'" not in target.run("dir()").result().text
