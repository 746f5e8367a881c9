"""What an attempt reads that only rejected attempts have bound is found in its source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbrefine.bindings import Binding, NameChange, StateChange
from nbrefine.leftovers import leftovers, read_in_any_case, stains, stale_names, stale_notice
from nbrefine.outputs import CellResult, Death
from nbrefine.values import Extraction, Isolation, Turn


def turn(
    number: int,
    *new: str,
    gone: str = "",
    changed: str = "",
    code: str = "",
    accepted: bool = False,
    isolation: Isolation = "none",
) -> Turn:
    names = [NameChange(name, None, Binding("int")) for name in new]
    names += [NameChange(name, Binding("int")) for name in gone.split()]
    names += [NameChange(name, Binding("int"), Binding("int")) for name in changed.split()]
    return Turn(
        number,
        extraction=Extraction("given", code),
        result=CellResult(code, "ok"),
        accepted=accepted,
        isolation=isolation,
        change=StateChange(tuple(names)),
    )


def test_names_of_rejected_attempts_are_left_until_an_accepted_one_binds_or_deletes_them() -> None:
    turns = [
        turn(1, "df", "clean", "tmp"),
        turn(2, "clean", "other"),
        turn(3, "df", gone="tmp", accepted=True),
        turn(4, "branch", isolation="fork"),
        Turn(5),
    ]
    assert leftovers(turns[:1]) == {"df": 1, "clean": 1, "tmp": 1}
    assert leftovers(turns) == {"clean": 2, "other": 2}
    assert leftovers([turn(1, "x"), turn(2, gone="x")]) == {}


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("df = load()", {}),
        ("df['a'] = 1", {"df": 1}),
        ("df = df.dropna()", {"df": 1}),
        ("df += 1", {"df": 1}),
        ("if new: df = load()", {}),
    ],
)
def test_an_accepted_cell_clears_a_name_by_binding_it_not_by_changing_it(
    code: str, left: dict[str, int]
) -> None:
    assert leftovers([turn(1, "df"), turn(2, changed="df", code=code, accepted=True)]) == left


def test_a_name_bound_again_to_the_same_value_is_left_no_more() -> None:
    assert leftovers([turn(1, "n"), turn(2, code="n = 1", accepted=True)]) == {}


def test_a_session_that_was_rebuilt_replaced_or_lost_holds_nothing_of_earlier_attempts() -> None:
    dirty = turn(1, "x")
    killed = replace(turn(2, "y"), result=CellResult("y", "died", death=Death(exit_code=3)))
    restarted = replace(turn(2, "y"), result=CellResult("y", "timeout", lost=("x",)))
    rebuilt, forked = turn(2, "y", isolation="rebuild"), turn(2, "y", isolation="fork")
    assert stains([dirty]) == (dirty,)
    for ended in (killed, restarted):
        assert (stains([dirty, ended]), leftovers([dirty, ended])) == ((), {})
    assert stains([dirty, rebuilt]) == (rebuilt,)
    assert leftovers([dirty, rebuilt]) == {"y": 2}
    assert stains([dirty, forked]) == (dirty,)
    assert stains([dirty, replace(forked, accepted=True)]) == ()


@pytest.mark.parametrize(
    ("source", "stale"),
    [
        ("print(x)", "x"),
        ("x = 1\nprint(x)", ""),
        ("print(x)\nx = 1", "x"),
        ("x = x + 1", "x"),
        ("x += 1", "x"),
        ("x[0] = 1", "x"),
        ("x.a = 1", "x"),
        ("x: int\nprint(x)", "x"),
        ("x: int = 3\nprint(x)", ""),
        ("del x", "x"),
        ("x = 1\ndel x", ""),
        ("import x\nx.a", ""),
        ("import x.y as z\nx", "x"),
        ("from a import b as x\nx", ""),
        ("import a.x\nx", "x"),
        ("for x in y: x", "y"),
        ("for i in range(x): pass", "x"),
        ("[x for x in y]", "y"),
        ("[z for x in x for z in y]", "x y"),
        ("[x for x in z]\nx", "z x"),
        ("{x: y for x, y in z}", "z"),
        ("[(x := i) for i in y]\nx", "y"),
        ("(x := 1)\nx", ""),
        ("[lambda: x for x in z]", "z"),
        ("with y as x: x", "y"),
        ("try: pass\nexcept E as x: x", ""),
        ("if y: x = 1\nprint(x)", "y"),
        ("match y:\n    case {'a': x, **z}: x, z\n    case [*z]: z", "y"),
        ("def f(x, y=y): return x, y, z", "y z"),
        ("def f():\n    x = 1\n    return x", ""),
        ("def f():\n    return x\nx = 1\nf()", ""),
        ("def f():\n    global x\n    x = 1", ""),
        ("def f(): x[0] = 1", "x"),
        ("def f():\n    def g(): return x\n    x = 1\n    return g", ""),
        ("@x\ndef f() -> y: ...", "x y"),
        ("lambda x: x + y", "y"),
        ("class A(x):\n    y = 1\n    z = y\n    def f(self): return y", "x y"),
        ("class x: ...\nx()", ""),
        ("f'{x!r:>{y}}'", "x y"),
        ("async def f(): await x\nasync for y in z: pass", "z x"),
        ("%time x.sum()\ny", "y"),
        ("a.x", ""),
        ("f(x=1)", ""),
        ("'x'", ""),
        ("x = = 1", ""),
    ],
)
def test_reads_are_found_as_python_scopes_them(source: str, stale: str) -> None:
    assert stale_names(source, {"x", "y", "z"}) == tuple(stale.split())


def test_the_notice_names_names_and_turns() -> None:
    left = {"clean": 2, "df": 3, "n": 1}
    assert stale_notice("total = df.sum()\nclean", left) == (
        "The code reads `df` and `clean` as rejected attempts left them (turns 2, 3). "
        "The accepted cells alone do not give that; bind it in the code itself."
    )
    assert stale_notice("print(n)", left).startswith(
        "The code reads `n` as rejected attempts left it (turn 1). "
    )
    assert stale_notice("df = 1", left) == ""


@pytest.mark.parametrize(
    "source",
    [
        "df.head()",
        "print(f'{df}')",
        "df += 1",
        "del df",
        "def f(x=df): pass",
        "@df\ndef f(): pass",
        "class A(df): pass",
        "[x for x in df]",
        "for row in df: pass",
        "if df: pass",
        "n: int = df",
        "df and x",
        "a < df < b",
        "with df: pass",
        "assert df is not None",
        "match df:\n  case 1: pass",
    ],
)
def test_a_cell_cannot_do_without_what_it_reads_in_any_case(source: str) -> None:
    assert read_in_any_case(source, ["df"]) == ("df",)


@pytest.mark.parametrize(
    "source",
    [
        "try:\n  df\nexcept NameError:\n  df = 1",
        "def f(): return df",
        "f = lambda: df",
        "if known: df",
        "x = df if known else 1",
        "known or df",
        "[df for x in y]",
        "for x in y: df",
        "while x: df",
        "with suppress(NameError): df",
        "with suppress(NameError), df: pass",
        "class A:\n  def f(self): return df",
        "n: df = 1",
        "n: df",
        "a < b < df",
        "assert x, df",
        "df = 1; df",
        "x = (",
    ],
)
def test_a_cell_may_do_without_what_it_reads_in_some_case(source: str) -> None:
    assert read_in_any_case(source, ["df"]) == ()
