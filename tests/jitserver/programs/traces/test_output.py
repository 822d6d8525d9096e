"""Prints and warnings of captured code while the daemon traces it: its caller has had them from its own trace."""

import subprocess
import sys

HEAD = """
import sys
import threading
import warnings

from jitserver.programs.traces import output

warnings.simplefilter("always")
output.watch()
"""


def run(source: str) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: what `watch` replaces stays replaced."""
    return subprocess.run([sys.executable, "-c", HEAD + source], capture_output=True, text=True, check=True)


def test_output_of_the_tracing_thread_is_withheld_until_its_trace_ends() -> None:
    done = run(
        """
with output.withheld():
    with output.withheld():
        print("of an inner trace")
    print("of a trace")
    print("of a trace", file=sys.stderr)
    warnings.warn("of a trace")
print("after it")
print("after it", file=sys.stderr)
warnings.warn("noticed after it")
"""
    )
    assert done.stdout == "after it\n"
    assert "of a trace" not in done.stderr
    assert done.stderr.startswith("after it\n")
    assert "UserWarning: noticed after it" in done.stderr


def test_other_threads_go_on_to_print() -> None:
    done = run(
        """
with output.withheld():
    other = threading.Thread(target=print, args=("of another thread",))
    other.start()
    other.join()
"""
    )
    assert done.stdout == "of another thread\n"


def test_warnings_of_a_failing_disk_are_shown() -> None:
    done = run(
        """
with output.withheld():
    warnings.warn("Error writing persistent compilation cache entry for 'jit_f': the disk is full")
"""
    )
    assert "the disk is full" in done.stderr
