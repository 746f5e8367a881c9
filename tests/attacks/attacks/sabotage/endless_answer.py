"""Writes an answer that does not end into every descriptor: None, dropped again, and so on."""
import os
import threading


def write(name):
    while True:
        os.write(name, b"N0" * 1000)


for name in os.listdir("/proc/self/fd"):
    if int(name) > 2:
        threading.Thread(target=write, args=(int(name),)).start()
