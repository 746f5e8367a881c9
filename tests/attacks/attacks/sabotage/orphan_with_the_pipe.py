"""Ends, but leaves a child that holds the pipe open on which the answer is awaited."""
import os
import time


def running(numbers):
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os._exit(0)
