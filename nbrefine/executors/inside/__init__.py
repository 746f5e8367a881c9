"""What runs in the processes of a check: standard library only, Python 3.9 and newer.

Loaded by path, as a package without a parent, by an interpreter that need not have nbrefine.
"""
