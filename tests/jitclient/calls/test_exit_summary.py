"""The end of a program: one line on a terminal if it is worth one."""

import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jitclient.api import report
from jitclient.calls import exit_summary
from jitclient.core import events
from jitclient.jaxside import compilation_cache, compiler

SAVES = """
    from jitclient.calls import exit_summary
    from jitclient.core.events import log

    log.count("found", "f()", "memory", "", seconds={seconds})
    log.count("made", "g()", "made", "", seconds=3.5)
    exit_summary.begin()
"""
LINE = "jitserver: 12.4 s saved (1 program found); details: jitserver run --report\n"
SECONDS = 60


def program(folder: Path, more: str = "", seconds: float = 12.4) -> Path:
    """Write a program that was saved seconds."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(SAVES).format(seconds=seconds) + textwrap.dedent(more))
    return path


def on_terminal(*command: str, env: dict[str, str] | None = None, stdin: int | None = None) -> str:
    """Return the text that a command writes to stderr if that is a terminal, and stdin, too, unless it is given."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=inner if stdin is None else stdin,
        stdout=subprocess.DEVNULL,
        stderr=inner,
        env={**os.environ, **(env or {})},
    )
    os.close(inner)
    shown = b""
    try:
        while True:
            shown += os.read(outer, 4096)
    except OSError:  # all ends of the terminal are closed
        pass
    finally:
        os.close(outer)
        process.wait(SECONDS)
    return shown.decode().replace("\r\n", "\n")


def test_a_program_that_was_saved_seconds_says_so(tmp_path: Path) -> None:
    path = str(program(tmp_path))
    assert on_terminal(path) == LINE
    assert on_terminal(path, env={"JITSERVER_REPORT": "off"}) == ""


def test_less_than_a_second_is_not_worth_a_line(tmp_path: Path) -> None:
    assert on_terminal(str(program(tmp_path, seconds=0.99))) == ""


def test_what_is_not_a_terminal_gets_no_line(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, program(tmp_path)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_a_worker_whose_stdin_is_its_master_has_no_line(tmp_path: Path) -> None:
    assert on_terminal(str(program(tmp_path)), stdin=subprocess.DEVNULL) == ""


LONG = """
    import numpy as np, jitclient
    from jitclient.calls import compile_log
    from jitclient.core import progress

    compile_log._LONG_SECONDS, progress.PATIENCE_SECONDS = 0.0, 1000  # no progress line on a busy machine

    @jitclient.jit
    def long(x):
        return x + {value}

    long(np.ones(3, np.float32))
"""


def test_a_program_that_took_long_to_make_has_its_line_at_once(own: Any, tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text(textwrap.dedent(LONG).format(value=1))
    env = {"JITSERVER_ADDRESS": own.address}
    with own.serving():
        first = on_terminal(str(path), env=env)
        why = "no similar program is cached"
        assert re.fullmatch(rf"jitserver: long\(f32\[3\]\)  compiled in .* m?s \({why}\)\n", first)
        assert on_terminal(str(path), env=env) == "", "it was found"
        path.write_text(textwrap.dedent(LONG).format(value=2))
        assert "code of long" in on_terminal(str(path), env=env)
        path.write_text(textwrap.dedent(LONG).format(value=3))
        assert on_terminal(str(path), env={**env, "JITSERVER_REPORT": "off"}) == ""


ENDS = {
    "raises": ("1 / 0", True),
    "exits": ("raise SystemExit(3)", True),
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", False),
    "ends without its handlers": ("import os\nos._exit(0)", False),
    "closes stderr": ("import sys\nsys.stderr.close()", False),
    "has no stderr": ("import sys\nsys.stderr = None", False),
    "replaces stderr": ("import sys\nsys.stderr = object()", False),
    "has no folder": (
        "import os, tempfile\nos.chdir(folder := tempfile.mkdtemp())\nos.rmdir(folder)",
        True,
    ),
    "changes its folder": ("import os\nos.chdir('/')", True),
    "forks": ("import os, sys\nif os.fork():\n    os.wait()\nsys.exit()", True),
    "forks a worker that uses jitserver": (
        "import os, sys\nif os.fork():\n    os.wait()\nelse:\n"
        "    log.count('found', 'h()', 'memory', '', seconds=5.0)\n    exit_summary.begin()\nsys.exit()",
        True,
    ),
    "has a pool": ("import multiprocessing\nwith multiprocessing.Pool(2) as pool:\n    pool.map(str, [1])", True),
    "begins twice": ("exit_summary._pid = None\nexit_summary.begin()", True),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_has_one_line_however_it_ends(end: str, tmp_path: Path) -> None:
    source, has_line = ENDS[end]
    assert on_terminal(str(program(tmp_path, source))).count(LINE) == has_line


def test_an_interrupted_program_ends_by_its_signal(tmp_path: Path) -> None:
    # Code from a string that runs at the exit, as in imports of some libraries, hides the interrupt from Python.
    path = tmp_path / "program.py"
    path.write_text(f"import jitclient.session.session\n{program(tmp_path, 'raise KeyboardInterrupt').read_text()}")
    for command in ((), ("-m", "jitclient"), ("-m", "jitclient", "--report")):
        done = subprocess.run([sys.executable, *command, path], stderr=subprocess.PIPE, check=False)
        assert done.returncode == -signal.SIGINT, done.stderr


def test_a_process_that_was_spawned_says_nothing(tmp_path: Path) -> None:
    work = textwrap.indent(textwrap.dedent(SAVES).format(seconds=12.4), "    ")
    source = f"def work():\n{work}" + textwrap.dedent("""
        import multiprocessing

        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=work)
            process.start()
            process.join()
            work()
    """)
    path = tmp_path / "program.py"
    path.write_text(source)
    assert on_terminal(str(path)) == LINE


def test_a_process_in_which_a_report_was_asked_for_has_no_line(tmp_path: Path) -> None:
    source = "exit_summary.begin(lambda: print('report', file=__import__('sys').stderr))"
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(SAVES).format(seconds=2.0).replace("exit_summary.begin()", source))
    assert on_terminal(str(path)) == "report\n"


def test_programs_have_names(tmp_path: Path) -> None:
    code = """
        from jitclient.calls import exit_summary
        from jitclient.core import events

        exit_summary.begin_reported(lambda: lambda: print(events.log.started.name))
    """
    package = tmp_path / "package"
    package.mkdir()
    for path in (tmp_path / "program.py", package / "__main__.py", package / "module.py"):
        path.write_text(textwrap.dedent(code))
    named = {
        ("program.py",): str(tmp_path / "program.py"),
        ("-m", "package"): "-m package",
        ("-m", "package.module"): "-m package.module",
        ("package",): str(package / "__main__.py"),
        ("-c", textwrap.dedent(code)): "python -c",
    }
    for command, name in named.items():
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, check=True, stdout=subprocess.PIPE, text=True)
        assert done.stdout == f"{name}\n"


def test_the_line_counts_programs_and_compilations() -> None:
    assert exit_summary.line(12.41, 9, 1031, "--report") == (
        "12.4 s saved (9 programs found, 1,031 compilations found); details: --report"
    )
    shared = "compilations found); JAX's own cache would save 8.0 s of it; details: x"
    assert exit_summary.line(12.41, 9, 1031, "x", 8.0).endswith(shared)
    assert exit_summary.line(200.0, 0, 1, "x") == "0:03:20 saved (1 compilation found); details: x"


def test_compilations_of_each_run_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = compilation_cache.CompilationCache(tmp_path)
    monkeypatch.setattr(compilation_cache, "_own", cache)
    for _ in range(10):
        cache.count_compiled(2.4, compiler.Remade("jit(while)", "mcmc.py:33", "the program calls back into Python"))
    cache.count_compiled(9.0, compiler.Remade("jit(f)", "a.py:1", compiler.JAXS_OWN_CACHE))
    reason = "the program calls back into Python. Call it in a function under jitclient.jit."
    what = "10 compilations that each run makes again, jit(while) at mcmc.py:33"
    assert exit_summary.line_of_remade() == f"24.0 s for {what}: {reason}"
    monkeypatch.setattr(events, "log", events.Log())
    expected = f"local     jit(while) at mcmc.py:33 was compiled, as in each run, in 24.0 s, 10 times: {reason}"
    assert [*report.lines(report.report_now())][-1] == expected
    cache.remade.clear()
    cache.count_compiled(0.5, compiler.Remade("jit(g)", "", "JAX's compiler is replaced"))
    assert exit_summary.line_of_remade() == ""
