"""Serves one weights file by llama.cpp on loopback; a program of its own, started by path.

The first line of standard input holds the settings as JSON; the address goes to standard
output once the model answers.  It ends with its controller: when standard input closes, and on
Linux with the controller's thread that started it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


def main() -> None:
    """Serve until standard input closes."""
    if sys.platform == "linux":
        # A process that the controller forked may hold the other end of standard input open.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # By it, a kernel whose user asks for the model knows that the process is not the user's.
        ctypes.CDLL(None).prctl(PR_SET_NAME, b"nb-model")
    settings = json.loads(sys.stdin.readline())

    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [settings["key"]]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.no_extra_bufts = settings["lean"]
    # The prompt cache would take up to 8 GB, and makes replies depend on what was asked before.
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # llama.cpp's threads have nothing to save


if __name__ == "__main__":
    main()
