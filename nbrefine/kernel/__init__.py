"""The live kernel: a Jupyter kernel's process and namespace under a controller's hand."""

from __future__ import annotations

from nbrefine.kernel.live import Kernel
from nbrefine.kernel.messages.collect import OutputLimits

__all__ = ["Kernel", "OutputLimits"]
