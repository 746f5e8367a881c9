"""Leaves a hundred processes behind, each in a group of its own."""
import os
import time

for _ in range(100):
    try:
        child = os.fork()
    except OSError:
        break
    if child == 0:
        os.setpgid(0, 0)
        while True:
            time.sleep(60)


def running(numbers):
    return None
