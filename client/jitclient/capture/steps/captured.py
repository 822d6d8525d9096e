"""Module that captured functions and classes name as their own (`__module__`).

Dataclasses and others look up a class's module in `sys.modules`, which never contains the user's modules.
"""
