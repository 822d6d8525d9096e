"""Whole programs: a script or a module, run as `python` itself would run it."""
