"""The module in which captured functions and classes say that they live.

Dataclasses and others look a class's module up in `sys.modules`; the user's own are never there.
"""
