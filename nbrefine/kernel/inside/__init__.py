"""What runs inside kernels: standard library and ipykernel only, Python 3.9 and newer.

`nbrefine.kernel.helper` sends these files as source text; nothing of nbrefine is installed or
imported there. They are kept in a private package in `sys.modules` with a copy of the builtins
of its own, so that whatever a session does to its names, builtins or streams does not reach
them. `cases` is used on the controller's side too.
"""
