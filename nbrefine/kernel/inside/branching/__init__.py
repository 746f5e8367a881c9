"""Kernels that fork: what runs in the processes of a Python kernelspec's own environment.

The files are loaded by path as the package `_nbrefine_branching` into any interpreter from
Python 3.10 on that has ipykernel 7; they use the standard library and ipykernel only.

    launch      the program: builds a kernel without sockets and threads, and becomes a nursery
    nursery     a process with one thread that forks on request: template, keeper, checkpoint
    app         builds the kernel, and runs throw-away code so that a first cell finds all imported
    plumbing    attaches sockets, threads and an event loop to a built kernel, and detaches them
    direct      attaches no more than a socket, for kernels that live for one cell
    framing     messages on that socket
    serving     runs a kernel, and forks it at a cell boundary
    wire        the messages between a controller and all of these
    hazards     finds what a fork would break, before it
    carry       makes a forked child whole, and shares nothing but files with its parent

What these two know of is in `threads`, `connections`, `descriptors`, `memory`, `workers` (pools of
threads and processes), `libraries` (OpenMP and OpenBLAS) and `debugging`.

A template forks keepers, a keeper forks fresh kernels, a kernel forks checkpoints of itself, and
a checkpoint forks branches, which are kernels again.
"""
