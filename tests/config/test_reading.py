"""YAML is read strictly; a mistake is told with its file, line and what is allowed there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from nbrefine.config.reading import Document, Section, checked, read_yaml
from nbrefine.errors import UsageError


class Leaf(Section):
    size: Annotated[int, Field(ge=1)] = 1
    name: str = ""


class Branch(Section):
    title: str
    leaf: Leaf | None = None


class Tree(Section):
    see = "See the garden"

    branches: Annotated[tuple[Branch, ...], Field(strict=False)] = ()
    weight: float = 1.0


def tree(folder: Path, text: str) -> Tree:
    path = folder / "tree.yaml"
    path.write_text(text, encoding="utf-8")
    return checked(Tree, read_yaml(path, what="tree file", see="Plant one"))


def test_blocks_within_lists_are_read(tmp_path: Path) -> None:
    read = tree(tmp_path, "branches:\n- title: a\n  leaf: {size: 2}\n- title: b\nweight: 2\n")
    assert read == Tree(
        branches=(Branch(title="a", leaf=Leaf(size=2)), Branch(title="b")), weight=2
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "branches:\n- title: a\n  leaf:\n    siz: 2\n",
            'line 4: unknown key "siz" in leaf. Did you mean "size"? Allowed: size, name',
        ),
        (
            "branches:\n- title: a\n- title: b\n  twig: 2\n",
            'line 4: unknown key "twig" in branches. Allowed: title, leaf',
        ),
        (
            "branches:\n- title: a\n  leaf: {size: 0}\n",
            "size in leaf: input should be greater than or equal to 1, not 0. See the garden",
        ),
        ("branches:\n- leaf: {}\n", 'line 2: the key "title" is missing in branches'),
        (
            "branches:\n- title: a\n  leaf: green\n",
            "leaf in branches: a block with some of the keys size, name is expected, not 'green'",
        ),
        ("branches:\n- title: a\n- just this\n", "line 3: branches: a block with some of the keys"),
        ("branches: 3\n", "line 1: branches: give a list, each item after a dash, not 3"),
        ("weight: .nan\n", "line 1: weight: input should be a finite number, not nan"),
        ("weight: '2'\n", "line 1: weight: input should be a valid number, not '2'"),
        (
            "branches:\n- title: a\n  leaf:\n    size: 2\n    name: x\n    size: 3\n",
            'line 6: "size" stands in line 4 already. Keep one of the two',
        ),
        ("branches:\n- {title: a, title: b}\n", 'line 2: "title" stands in line 2 already'),
        ("branches: &all [*all]\n", "line 1: this refers to itself"),
        ("- a\n", "is no tree file: it holds no `key: value` lines. Plant one"),
        ("weight: [1\n", "line 2: this is not valid YAML"),
        ("weight: 2026-99-99\n", "this is not valid YAML: month must be in 1..12"),
        ("? [a, b]\n: 1\n", "this is not valid YAML: "),
        ("x: " + 600 * "[" + 600 * "]" + "\n", "this is not valid YAML: "),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        tree(tmp_path, text)
    assert said in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "tree.yaml"))
    assert "\n" not in str(caught.value)


def test_values_from_elsewhere_are_told_by_the_whole_way_to_them() -> None:
    values = {"branches": [{"title": "a"}, {"title": "b", "leaf": {"siz": 1}}]}
    with pytest.raises(UsageError, match=r'^unknown key "siz" in branches\[1\]\.leaf\. Did'):
        checked(Tree, Document(values))


def test_a_block_that_several_share_is_told_where_it_stands(tmp_path: Path) -> None:
    text = (
        "branches:\n- title: a\n  leaf: &leaf\n    size: 2\n"
        "- title: b\n  leaf:\n    <<: *leaf\n    name: two\n"
    )
    assert tree(tmp_path, text).branches[1].leaf == Leaf(size=2, name="two")
    with pytest.raises(UsageError, match="line 8: name in leaf"):
        tree(tmp_path, text.replace("name: two", "name: 2"))
    alone = text.replace("  leaf: &leaf\n    size: 2\n", "").replace("*leaf", "{size: x}")
    with pytest.raises(UsageError, match="line 5: size in leaf"):
        tree(tmp_path, alone)
