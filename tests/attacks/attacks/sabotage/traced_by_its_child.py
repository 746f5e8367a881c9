"""Ends while a process that it has left traces it, so that whoever waits for its end waits on."""

import ctypes
import os
import time

PTRACE_SEIZE, PR_SET_DUMPABLE, PR_SET_PTRACER = 0x4206, 4, 0x59616D61
libc = ctypes.CDLL(None)

libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
hear, say = os.pipe()
traced = os.getpid()
child = os.fork()
if child == 0:
    os.setsid()
    os.read(hear, 1)
    libc.ptrace(PTRACE_SEIZE, traced, 0, 0)
    os.kill(traced, 9)
    while True:
        time.sleep(60)
libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(child), 0, 0, 0)
os.write(say, b"+")
time.sleep(60)


def running(numbers):
    return None
