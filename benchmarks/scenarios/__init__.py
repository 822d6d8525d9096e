"""The scenarios that are measured, one family in each module.

Each has `rows(effort)`, which measures and gives one `Row` after the other.
"""

NAMES = (
    "first_call",
    "own_trace",
    "restart",
    "small_call",
    "pipelined",
    "loops",
    "array_size",
    "remote",
    "over_ssh",
    "leaves",
    "nnx",
    "effects",
    "functions",
    "clients",
    "tasks",
    "tracing",
    "imports",
    "whole_script",
    "lab",
    "capture",
    "unchanged",
    "command_line",
    "catalog",
    "gpu",
)
