"""`nbrefine kernels`: what is listed is tried, and what is installed starts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from nbrefine.cli import call
from nbrefine.kernel import Kernel


def test_the_list_says_which_kernels_branch_and_why_others_do_not(
    bash_kernel: str, kernelspec: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    old = kernelspec("gone", "/no/such/python", "-m", "ipykernel", "-f", "{connection_file}")
    assert call(["kernels", "list", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["python3"]["branching"]
    assert found["python3"]["language"] == "python"
    assert found["python3"]["interpreter"].startswith("/")
    assert not found[bash_kernel]["branching"]
    assert found[bash_kernel]["language"] == "bash"
    assert found[bash_kernel]["reason"] == "it is not started by `python -m ipykernel`"
    assert "/no/such/python could not be started" in found[old]["reason"]
    assert call(["kernels", "list"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "python3 python, branches" in lines
    assert "bash bash, cannot branch: it is not started by `python -m ipykernel`" in lines


def test_a_kernelspec_that_cannot_be_read_is_listed_as_such(
    tmp_path: Path, kernelspec: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = kernelspec("torn", sys.executable)
    (tmp_path / "kernels" / name / "kernel.json").write_text("{")
    assert call(["kernels", "list", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert "kernel.json cannot be read" in found["torn"]["reason"]


def test_an_installed_kernelspec_is_found_and_its_kernels_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["kernels", "install", "--name", "mine", "--preload", "colorsys, wave"]
    assert call([*words, "--prefix", str(tmp_path)]) == 0
    folder = tmp_path / "share" / "jupyter" / "kernels" / "mine"
    assert capsys.readouterr().out == f"Kernelspec mine is in {folder}\n"
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["metadata"]["kernel_provisioner"] == {
        "provisioner_name": "nbrefine-fork",
        "config": {"preload": ["colorsys", "wave"]},
    }
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    with Kernel.start("mine") as kernel:
        source = "import sys; print('colorsys' in sys.modules, 'wave' in sys.modules)"
        assert kernel.run(source).result().text == "True True\n"
        assert kernel.info.display_name == "Python 3 (mine)"
    assert call([*words, "--prefix", str(tmp_path)]) == 0  # once more, in its place


def test_the_users_folder_is_where_jupyter_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    assert call(["kernels", "install", "--user", "--name", "mine"]) == 0
    assert capsys.readouterr().out == f"Kernelspec mine is in {tmp_path / 'kernels' / 'mine'}\n"
    found = KernelSpecManager().find_kernel_specs()
    assert found["mine"] == str(tmp_path / "kernels" / "mine")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preload", "no_such_package"], "has no no_such_package. Run: "),
        (["--user", "--sys-prefix"], "name different places. Give one of them"),
        (["--preload", "a;b"], "'a;b' is no name of a module. Name modules with commas"),
        (["--preload", "numpy,-r x"], "'-r x' is no name of a module. "),
        (
            ["--name", "a b", "--prefix", "PREFIX"],
            "nbrefine: A kernelspec cannot be named 'a b'. Use letters, digits, '-', '_' and '.'\n",
        ),
        (["--prefix", "/proc/none"], "cannot be written"),
    ],
)
def test_a_wrong_install_is_one_line_with_what_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    words = [str(tmp_path) if each == "PREFIX" else each for each in words]
    assert call(["kernels", "install", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert said in told.err


def test_the_kernelspec_that_comes_along_names_our_provisioner() -> None:
    shipped = Path(__file__).parents[2] / "kernels" / "nbrefine"
    spec = json.loads((shipped / "kernel.json").read_text())
    assert spec["argv"] == ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert spec["display_name"] == "Python 3 (nbrefine)"
    assert spec["metadata"]["kernel_provisioner"] == {
        "provisioner_name": "nbrefine-fork",
        "config": {"preload": ["numpy", "pandas"]},
    }
    assert "no sandbox" in (shipped / "README.md").read_text()
