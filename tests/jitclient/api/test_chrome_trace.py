"""The trace for Perfetto: valid events, nested in their lanes."""

import json
import os

from jitclient.api import chrome_trace

from .run_records import record


def test_processes_and_threads_have_names() -> None:
    events = json.loads(chrome_trace.encoded(record()))["traceEvents"]
    names = [(each["name"], each["pid"], each["tid"], each["args"]["name"]) for each in events if each["ph"] == "M"]
    assert names == [
        ("process_name", os.getpid(), 0, "program train.py"),
        ("process_name", 4321, 0, "jitserver daemon"),
        ("thread_name", os.getpid(), 1, "MainThread"),
        ("thread_name", 4321, 1, "daemon, for MainThread"),
    ]


def test_events_have_microseconds_and_their_program() -> None:
    events = json.loads(chrome_trace.encoded(record()))["traceEvents"]
    [event] = [each for each in events if each["name"] == "compile f(f32[3])"]
    assert event == {
        "ph": "X",
        "name": "compile f(f32[3])",
        "cat": "compile",
        "ts": 250_000.0,
        "dur": 240_000.0,
        "pid": 4321,
        "tid": 1,
        "args": {
            "program": "f(f32[3])",
            "where": "a.py:7",
            "got": "made",
            "differences": ["global LR: 0.1 -> 0.2"],
        },
    }
    [imported] = [each for each in events if each["name"] == "import jax"]
    assert imported["args"] == {}


def test_the_figures_of_the_run_are_beside_the_events() -> None:
    others = json.loads(chrome_trace.encoded(record()))["otherData"]
    assert (others["made"], others["found"], others["second_run"]) == (1, 1, {"seconds": 0.71, "made_seconds": 0.29})
