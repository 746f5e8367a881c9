"""Kernels whose process belongs to a provisioner of somebody else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from nbrefine.kernel import Kernel

OPAQUE = """
from jupyter_client.provisioning import LocalProvisioner

class Handle:
    def __init__(self, process):
        self.stdin = self.stdout = self.stderr = None
        self.poll, self.wait = process.poll, process.wait
        self.send_signal, self.kill = process.send_signal, process.kill

class Opaque(LocalProvisioner):
    async def launch_kernel(self, cmd, **settings):
        info = await super().launch_kernel(cmd, **settings)
        self.process = Handle(self.process)
        return info
"""


@pytest.fixture
def opaque(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernelspec: Callable[..., str]
) -> Iterator[str]:
    """A kernelspec with a provisioner that does not show its process."""
    (tmp_path / "opaque_provisioner.py").write_text(OPAQUE)
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = EntryPoint("opaque", "opaque_provisioner:Opaque", KernelProvisionerFactory.GROUP_NAME)
    monkeypatch.setitem(KernelProvisionerFactory.provisioners, "opaque", entry)
    argv = (sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}")
    yield kernelspec(
        "opaque", *argv, metadata={"kernel_provisioner": {"provisioner_name": "opaque"}}
    )
    sys.modules.pop("opaque_provisioner", None)


def test_a_kernel_behind_a_foreign_provisioner_runs_dies_and_comes_back(opaque: str) -> None:
    with Kernel.start(opaque) as kernel:
        assert kernel.info.pid is None
        assert kernel.run("6 * 7").result().text == "42\n"
        assert kernel.run("while True: pass", timeout=1).result(60).status == "timeout"
        result = kernel.run("import os; os._exit(5)").result(60)
        assert result.status == "died"
        assert result.death is not None
        assert result.death.exit_code == 5
        kernel.restart().result(60)
        assert kernel.run("'new'").result().text == "'new'\n"
