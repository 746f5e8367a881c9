"""Leaves a process of its own session behind."""
import os
import time

if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os._exit(0)


def running(numbers):
    return None
