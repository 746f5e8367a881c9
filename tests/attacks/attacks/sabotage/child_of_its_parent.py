"""Leaves a process that is a child of whoever started this one, and so is none of its own."""

import ctypes
import os
import platform
import time

CLONE = {"x86_64": 56, "aarch64": 220}[platform.machine()]
CLONE_PARENT, SIGCHLD = 0x8000, 17

if ctypes.CDLL(None).syscall(CLONE, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0:
    os.setsid()
    while True:
        time.sleep(60)


def running(numbers):
    return None
