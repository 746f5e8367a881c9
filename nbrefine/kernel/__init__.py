"""The live kernel: a Jupyter kernel's process and namespace under a controller's hand."""

from __future__ import annotations

from nbrefine.kernel.collect import OutputLimits
from nbrefine.kernel.live import Kernel

__all__ = ["Kernel", "OutputLimits"]
