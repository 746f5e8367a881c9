"""What the namespace holds is listed cheaply, in few words, whatever the objects do."""

from __future__ import annotations

import pytest

from nbrefine.kernel import Kernel
from nbrefine.kernel.state.namespace import Variable, describe


@pytest.fixture
def kernel(shared_kernel: Kernel) -> Kernel:
    shared_kernel.run("%reset -f").result()
    return shared_kernel


def listed(kernel: Kernel, source: str) -> dict[str, Variable]:
    result = kernel.run(source).result()
    assert result.ok, result.text
    return {variable.name: variable for variable in kernel.variables().result()}


def test_only_names_of_the_user_are_listed_in_the_order_of_binding(kernel: Kernel) -> None:
    found = listed(kernel, "b = 1\n_private = 2\na = 3\nopen = 'mine'")
    assert list(found) == ["open", "b", "a"]  # `open` keeps the place IPython gave it
    kernel.run("del open, b").result()
    assert [variable.name for variable in kernel.variables().result()] == ["a"]


def test_missing_values_are_counted_by_column_beside_infinite_ones(kernel: Kernel) -> None:
    frames = listed(
        kernel,
        "import numpy as np, pandas as pd\n"
        "some = pd.DataFrame({'a': [np.inf, -np.inf], 'b': [np.nan, 1], 'c': [np.nan, np.nan]})\n"
        "none = pd.DataFrame({'a': [np.inf, -np.inf], 'b': [0.0, 1.0]})\n"
        "parts = none.assign(c=[None, 'x'], d=[np.nan, 1], e=[1, 2])\n"
        "np.seterr(all='raise')",
    )
    kernel.run("np.seterr(all='warn')").result()
    assert frames["some"].detail == "a (float64), b (float64, 1 missing), c (float64, 2 missing)"
    assert frames["none"].detail == "a (float64), b (float64)"
    assert frames["parts"].detail == (
        "a (float64), b (float64), c (str, 1 missing), d (float64, 1 missing), e (int64)"
    )


def test_missing_values_of_what_is_too_large_to_count_are_judged_by_a_sample(
    kernel: Kernel,
) -> None:
    found = listed(
        kernel,
        "import numpy as np, pandas as pd\n"
        "half = np.zeros(5_000_001, np.float16); half[:50_000] = np.nan\n"
        "large = pd.DataFrame({'a': half, 'b': np.zeros(len(half), np.int8)})\n"
        "column = large['a']",
    )
    kernel.run("del half, large, column").result()
    assert found["large"].detail == "a (float16, about 1.0 % missing), b (int8)"
    assert found["column"].detail == "float16, about 1.0 % missing, name a"


def test_a_frame_tells_shape_columns_types_missing_values_and_two_rows(kernel: Kernel) -> None:
    frame = listed(
        kernel,
        "import pandas as pd\n"
        "df = pd.DataFrame({'species': ['Adelie', 'Gentoo', None], 'mass': [1.5, None, None],"
        " 'year': [2007, 2008, 2009]})",
    )["df"]
    assert (frame.type, frame.shape) == ("DataFrame", (3, 3))
    assert frame.detail == "species (str, 1 missing), mass (float64, 2 missing), year (int64)"
    assert frame.preview == "('Adelie', 1.5, 2007), ('Gentoo', nan, 2008)"
    assert frame.size is not None
    assert frame.size > 3 * 3 * 8  # three values of eight bytes a column, and the index


def test_the_rows_of_a_frame_tell_moments_plainly_and_no_more_digits_than_are_read(
    kernel: Kernel,
) -> None:
    frame = listed(
        kernel,
        "import pandas as pd\n"
        "df = pd.DataFrame({'day': pd.to_datetime(['2024-01-01', None]), 'share': [1 / 3, 39.1],"
        " 'size': pd.array([1, None], dtype='Int64'), 'kind': pd.Categorical(['a', None]),"
        " 'mixed': [12345678901.5, 'x'], 'z': [1 + 2j, 3]})",
    )["df"]
    assert frame.detail == (
        "day (datetime64[us], 1 missing), share (float64), size (Int64, 1 missing), "
        "kind (category, 1 missing), mixed (object), z (complex128)"
    )
    assert frame.preview == (
        "(2024-01-01 00:00:00, 0.333333, 1, 'a', 1.23457e+10, (1+2j)), "
        "(NaT, 39.1, <NA>, nan, 'x', (3+0j))"
    )


def test_awkward_frames_are_listed(kernel: Kernel) -> None:
    found = listed(
        kernel,
        "import pandas as pd, numpy as np\n"
        "empty = pd.DataFrame()\n"
        "twice = pd.DataFrame([[1, 2]], columns=['x', 'x'])\n"
        "wide = pd.DataFrame(np.zeros((2, 100)))\n"
        "dated = pd.DataFrame({'v': [1]}, index=pd.Index(['2020'], name='day'))\n"
        "levels = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([('a', 'b')]))",
    )
    assert (found["empty"].shape, found["empty"].detail) == ((0, 0), "")
    assert found["twice"].detail == "x (int64), x (int64)"
    assert found["wide"].detail.endswith("39 (float64), … 60 more columns")
    assert found["dated"].detail == "v (int64); index day (str)"
    assert found["levels"].detail == "('a', 'b') (int64)"


def test_arrays_and_series_tell_their_types(kernel: Kernel) -> None:
    found = listed(
        kernel,
        "import pandas as pd, numpy as np\n"
        "a = np.arange(6, dtype='int32').reshape(2, 3)\n"
        "s = pd.Series([1.0, None], name='mass')",
    )
    array, series = found["a"], found["s"]
    assert (array.shape, array.detail, array.size) == ((2, 3), "int32", 24)
    assert array.preview == "(0, 1, 2, 3, 4), … 1 more values"
    assert (series.shape, series.detail) == ((2,), "float64, 1 missing, name mass")


def test_containers_text_functions_classes_and_modules_are_told_apart(kernel: Kernel) -> None:
    found = listed(
        kernel,
        "import math as m\nwords = ['a', 'b', 1]\nages = {'ann': 3, 'bob': 4}\ntext = 'x' * 500\n"
        "def area(r, unit='m'): ...\nclass Point: ...\nrate = 0.5\np = Point",
    )
    assert (found["words"].shape, found["words"].detail) == ((3,), "of str, int")
    assert (found["ages"].detail, found["ages"].preview) == (
        "keys 'ann', 'bob'",
        "{'ann': 3, 'bob': 4}",
    )
    assert found["text"].preview == f"'{'x' * 120}'… (380 more characters)"
    assert (found["area"].kind, found["area"].preview) == ("function", "(r, unit='m')")
    assert (found["Point"].kind, found["m"].kind) == ("class", "module")
    assert (found["rate"].preview, found["rate"].shape) == ("0.5", None)


HOSTILE = """
class Raises:
    def __repr__(self): raise RuntimeError("no")
class Loops:
    def __repr__(self):
        while True: pass
class Prints:
    def __repr__(self):
        print("noise " * 1000)
        return "quiet"
class Eats:
    def __repr__(self):
        while True:
            try:
                sum(range(1000))
            except Exception:
                pass
class Lies:
    __class__ = property(lambda self: dict)
    def __len__(self): raise RuntimeError("no")
    def __getattr__(self, name): raise RuntimeError("no")
    def __bool__(self): raise RuntimeError("no")
    def __eq__(self, other): raise RuntimeError("no")
    __hash__ = None
raises, loops, prints, eats, lies = Raises(), Loops(), Prints(), Eats(), Lies()
endless = iter(int, 1)
many = (row for row in range(10))
"""


def test_hostile_objects_are_listed_and_harm_nobody(kernel: Kernel) -> None:
    found = listed(kernel, HOSTILE)
    assert "RuntimeError" in found["raises"].preview
    assert "took over" in found["loops"].detail + found["loops"].preview
    assert found["prints"].preview == "quiet"
    assert "took over" in found["eats"].detail + found["eats"].preview
    assert found["lies"].type == "Lies"
    assert kernel.run("next(many)").result().text == "0\n"
    assert kernel.late().result() == ()


def test_no_name_of_the_data_can_break_a_line(kernel: Kernel) -> None:
    source = (
        "import pandas as pd\ndf = pd.DataFrame({'a\\nOur words: b': [1]})\ns = 'd\\ne'\n"
        "globals()['x\\ny'] = 1\n"
    )
    described = describe(tuple(listed(kernel, source).values()))
    assert described.splitlines() == [
        r"df: DataFrame 1 rows x 1 columns; 'a\nOur words: b' (int64)",
        "  first rows: (1)",
        r"s: str of length 3 = 'd\ne'",
        "modules: pd (pandas)",
    ]


def test_a_large_namespace_is_listed_without_reading_it(kernel: Kernel) -> None:
    found = listed(
        kernel,
        "import numpy as np\nbig = np.zeros((10_000, 1_000))\nbytes_ = bytes(10**7)\n"
        "nested = [[0] * 1000] * 10_000\nmany = {i: str(i) for i in range(100_000)}",
    )
    assert found["big"].size == 80_000_000
    assert found["many"].shape == (100_000,)
    assert all(len(item.preview) + len(item.detail) < 1000 for item in found.values())


def test_a_kernel_of_another_language_lists_nothing(bash_kernel: str) -> None:
    with Kernel.start(bash_kernel) as kernel:
        assert kernel.variables().result() == ()
