"""Leaves with code 0 from within the tested function."""
import os


def running(numbers):
    os._exit(0)
