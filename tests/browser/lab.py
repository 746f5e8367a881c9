"""A JupyterLab of the tests' own on loopback, and notebooks opened in it by a real browser."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import nbformat
import psutil
from nbformat.sign import NotebookNotary

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

PATIENCE = 60
"""Seconds in which a server answers, a notebook opens, a cell ends, on a machine under load."""

QUIET = {
    "apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "docmanager-extension/plugin": {"autosave": False},
}
"""Settings without which Lab asks for news, and saves while a test reads."""

_READY = """async () => {
  const opened = window.jupyterapp.shell.currentWidget;
  await opened.context.ready;
  await opened.sessionContext.ready;
  await opened.sessionContext.session.kernel.info;
}"""
# The icon says idle before there is a session, and a command to run is then lost without an error.


@dataclass(frozen=True, slots=True)
class Sheet:
    """A notebook that is open in Lab."""

    page: Page
    path: Path

    def run_all(self) -> None:
        """Run all cells and wait until they have ended."""
        self.page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")

    def run(self, number: int) -> None:
        """Run one cell and wait until it has ended."""
        self.page.evaluate(
            """async number => {
              jupyterapp.shell.currentWidget.content.activeCellIndex = number;
              await jupyterapp.commands.execute('notebook:run-cell');
            }""",
            number,
        )

    def outputs(self, number: int) -> Locator:
        """Give the outputs of a cell as they are shown."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number).locator(".jp-OutputArea")

    def save(self) -> dict[str, Any]:
        """Save it, and give what is in the file."""
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
        saved: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return saved

    def close(self) -> None:
        """End its kernel and leave the page; a second call does nothing."""
        self.page.evaluate("() => window.jupyterapp?.shell.currentWidget.sessionContext.shutdown()")
        self.page.goto("about:blank")


@dataclass(frozen=True, slots=True)
class Lab:
    """A server that has begun to answer."""

    url: str
    token: str
    root: Path
    """The folder that it shows."""
    env: dict[str, str]
    """The environment in which it keeps to folders of its own."""

    def write(self, sources: Sequence[str], kernel: str = "python3") -> str:
        """Write a notebook into a new folder, and give its name."""
        form: Any = nbformat.v4  # has no types
        # Lab asks a person where a notebook does not say which kernel it wants.
        spec = {"name": kernel, "display_name": kernel}
        cells = [form.new_code_cell(source) for source in sources]
        path = self.root / uuid4().hex / "written.ipynb"
        path.parent.mkdir()
        nbformat.write(form.new_notebook(cells=cells, metadata={"kernelspec": spec}), path)  # type: ignore[no-untyped-call]
        return str(path.relative_to(self.root))

    def open(self, page: Page, name: str) -> Sheet:
        """Open a notebook of the folder, alone in the window, with a kernel that answers."""
        place = f"doc/workspaces/{uuid4().hex}/tree/{name}"
        page.goto(f"{self.url}/{place}?reset&token={self.token}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=1000 * PATIENCE)
        page.evaluate(_READY)
        return Sheet(page, self.root / name)

    def trust(self, name: str) -> None:
        """Sign a notebook of the folder, as a person does who trusts it."""
        notary = NotebookNotary(data_dir=self.env["JUPYTER_DATA_DIR"])  # type: ignore[no-untyped-call]
        try:
            notary.sign(nbformat.read(self.root / name, as_version=4))  # type: ignore[no-untyped-call]
        finally:
            notary.store.close()


@contextmanager
def running_lab(home: Path) -> Iterator[Lab]:
    """Start a server that keeps all it writes in a folder, and end it and its kernels."""
    root, token, port = home / "root", secrets.token_hex(16), _free_port()
    root.mkdir(parents=True)
    env = {**os.environ, **_folders(home)}
    settings = Path(env["JUPYTERLAB_SETTINGS_DIR"], "@jupyterlab")
    for name, values in QUIET.items():
        file = settings / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    argv = [
        *_bound_to_this_process(),
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={root}",
        f"--IdentityProvider.token={token}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    ]
    with (home / "lab.log").open("wb") as log:
        server = subprocess.Popen(argv, env=env, cwd=home, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        _await_answer(f"{url}/api", server, home / "lab.log")
        yield Lab(url, token, root, env)
    finally:
        _end(server)


def _end(server: subprocess.Popen[bytes]) -> None:
    """End a server and the kernels that it has started, by force where it takes too long."""
    try:
        kernels = psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        kernels = []
    server.terminate()
    try:
        server.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    for kernel in psutil.wait_procs(kernels, timeout=PATIENCE)[1]:
        kernel.kill()


def _folders(home: Path) -> dict[str, str]:
    names = (
        "HOME",
        "IPYTHONDIR",
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
    )
    for name in names:
        (home / name).mkdir()
    return {name: str(home / name) for name in names}


def _bound_to_this_process() -> list[str]:
    """Give what makes a program end with the tests, also where they are killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_answer(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab does not answer:\n{log.read_text()}") from error
            time.sleep(0.1)
