"""A run in a child of a helper is as in a process of its own."""

import contextlib
import json
import os
import pty
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from jitserver.run import fd_passing
from jitserver.run.request import Command, Request

DESCRIBE = """
    import json, os, signal, sys
    print(json.dumps({
        "argv": sys.argv, "path": list(sys.path), "name": __name__, "file": __file__, "cwd": os.getcwd(),
        "variables": list(os.environ.items()), "input": sys.stdin.read(), "umask": os.umask(0),
        "ignored": [n for n in signal.valid_signals() if signal.getsignal(n) is signal.SIG_IGN],
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "descriptors": [n for n in range(50) if os.path.exists(f"/proc/self/fd/{n}")],
        "streams": [(s.encoding, s.errors, s.line_buffering, s.name, s.mode) for s in
                    (sys.stdin, sys.stdout, sys.stderr)],
        "flags": str(sys.flags), "main": [str(type(__spec__)), sorted(globals())],
    }))
    print("to stderr", file=sys.stderr)
    sys.exit(7)
"""


def described(done: Any) -> Any:
    assert done.returncode == 7, done.stderr
    assert done.stderr == "to stderr\n"
    return json.loads(done.stdout)


UNUSUAL = """
import signal
os.umask(0o027)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
"""


@pytest.mark.parametrize("before", ["pass", UNUSUAL], ids=["usual", "unusual"])
def test_it_is_described_as_with_python(warm: Any, before: str) -> None:
    script = warm.script(DESCRIBE)
    one, other = os.pipe()
    options = {"pass_fds": (one,), "before": before}
    try:
        ran = described(warm.run("--verbose", script, "a b", "-c", input="some\ninput", **options))
        assert ran == described(warm.plain(script, "a b", "-c", input="some\ninput", **options))
    finally:
        os.close(one)
        os.close(other)
    assert ran["input"] == "some\ninput"


def test_a_module_is_run_from_the_working_folder(warm: Any) -> None:
    warm.script("", "package/__init__.py")
    warm.script(DESCRIBE, "package/__main__.py")
    ran = described(warm.run("--verbose", "-m", "package", "x", input="some\ninput"))
    assert ran == described(warm.plain("-m", "package", "x", input="some\ninput"))


def test_an_inherited_descriptor_is_the_same_file(warm: Any) -> None:
    script = warm.script("import os, sys; os.write(int(sys.argv[1]), b'written')")
    one, other = os.pipe()
    assert warm.run("--verbose", script, str(other), pass_fds=(other,)).stderr == ""
    os.close(other)
    assert os.read(one, 100) == b"written"
    assert os.read(one, 100) == b""
    os.close(one)


def test_a_pipe_that_the_program_closes_is_closed(warm: Any) -> None:
    script = warm.script("import os, sys; os.close(1); print('closed', file=sys.stderr); sys.stdin.read()")
    process = warm.start(script)
    assert process.stdout.read() == ""  # while the program still reads
    assert process.stderr.readline() == "closed\n"
    assert warm.end(process).returncode == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT"])
def test_a_signal_ends_it(warm: Any, name: str) -> None:
    process = warm.start("--verbose", warm.script("import time; print('ready', flush=True); time.sleep(600)"))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(getattr(signal, name))
    done = warm.end(process)
    assert (done.returncode, done.stderr) == (-getattr(signal, name), "")


def test_a_signal_reaches_its_handler(warm: Any) -> None:
    source = """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"handled\\n"), sys.exit(5)))
        signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"size\\n"))  # a print within a print is refused
        print("ready", flush=True)
        while True:
            time.sleep(0.01)
    """
    process = warm.start("--verbose", warm.script(source))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGWINCH)
    assert process.stdout.readline() == "size\n"
    process.send_signal(signal.SIGTERM)
    done = warm.end(process)
    assert (done.returncode, done.stdout, done.stderr) == (5, "handled\n", "")


def test_it_ends_by_the_signal_of_the_program(warm: Any) -> None:
    script = warm.script("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert warm.run(script).returncode == warm.plain(script).returncode < 0


def test_it_ends_with_the_command(warm: Any, until: Any) -> None:
    process = warm.start(warm.script("import os, time; print(os.getpid(), flush=True); time.sleep(600)"))
    pid = int(process.stdout.readline())
    assert warm.is_alive(pid)
    process.kill()
    until(lambda: not warm.is_alive(pid), "its end")
    warm.end(process)


def test_it_ends_with_its_supervisor(warm: Any, until: Any) -> None:
    source = "import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(600)"
    process = warm.start(warm.script(source))
    pid, supervisor = map(int, process.stdout.readline().split())
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not warm.is_alive(pid), "its end")
    assert warm.end(process).returncode == -signal.SIGKILL


def test_it_stops_and_continues_with_the_command(warm: Any, until: Any) -> None:
    source = """
        import os, signal, time
        continued = []
        signal.signal(signal.SIGCONT, lambda *_: continued.append(os.write(1, b"continued\\n")))
        print(os.getpid(), flush=True)
        while not continued:
            time.sleep(0.01)
    """
    process = warm.start(warm.script(source), process_group=0)  # a group whose parent has ended does not stop
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGTSTP)
    until(lambda: warm.state(pid) == warm.state(process.pid) == "T", "both to stop")
    process.send_signal(signal.SIGCONT)
    assert process.stdout.readline() == "continued\n"
    assert warm.end(process).returncode == 0


def test_it_goes_on_with_its_command_where_another_process_continues_it(warm: Any, until: Any) -> None:
    source = "import os, time; print(os.getpid(), flush=True); print(input())"
    process = warm.start(warm.script(source), process_group=0)
    pid = int(process.stdout.readline())

    def are_stopped() -> bool:
        # Once more each time: the command continues the run when it is continued itself, and may do so only now.
        os.kill(pid, signal.SIGSTOP)
        return bool(warm.state(pid) == warm.state(process.pid) == "T")

    for _ in range(2):
        until(are_stopped, "both to stop")
        os.kill(pid, signal.SIGCONT)
        until(lambda: warm.state(process.pid) == "S", "the command to go on")
    done = warm.end(process, "continues\n")
    assert (done.returncode, done.stdout) == (0, "continues\n")


def test_it_does_not_stop_where_nobody_could_continue_it(warm: Any) -> None:
    process = warm.start(warm.script("print('begins', flush=True)\nprint(input())"), start_new_session=True)
    assert process.stdout.readline() == "begins\n"
    process.send_signal(signal.SIGTSTP)
    done = warm.end(process, "continues\n")
    assert (done.returncode, done.stdout) == (0, "continues\n")


def test_each_run_has_random_numbers_of_its_own(warm: Any) -> None:
    source = """
        import multiprocessing, numpy as np, random
        print(random.random(), np.random.rand(), random.Random().random(), np.random.default_rng().random())
        print(multiprocessing.current_process().authkey.hex())
    """
    script = warm.script(source)
    runs = [warm.run("--verbose", script) for _ in range(2)]
    assert [run.stderr for run in runs] == ["", ""]
    first, second = (run.stdout.split() for run in runs)
    assert len(first) == 5
    assert set(first).isdisjoint(second)


def test_numpy_computes_with_threads_in_a_run(warm: Any) -> None:
    script = warm.script("import numpy as np; a = np.ones((500, 500)); print((a @ a).sum())")
    assert warm.run("--verbose", script).stdout == "125000000.0\n"


def test_processes_of_a_run_start_where_it_did(warm: Any) -> None:
    source = """
        import multiprocessing, os
        def work(x):
            return x * 2, os.getcwd()
        if __name__ == "__main__":
            for how in ("spawn", "fork", "forkserver"):
                with multiprocessing.get_context(how).Pool(2) as pool:
                    print(pool.map(work, range(3)))
    """
    warm.script(source, "pool.py")
    done = warm.run("--verbose", "pool.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{[(x * 2, str(warm.folder)) for x in range(3)]}\n" * 3


def test_many_runs_at_once(warm: Any) -> None:
    script = warm.script("import sys; print(sys.stdin.read() * 2, sys.argv[1])")
    processes = [warm.start("--verbose", script, str(number)) for number in range(8)]
    for number, process in enumerate(processes):
        done = warm.end(process, f"input {number} ")
        assert (done.stdout, done.stderr) == (f"input {number} input {number}  {number}\n", "")


def test_its_objects_end_as_with_python(warm: Any) -> None:
    source = """
        import numpy as np, json
        class Ends:
            def __init__(self, name):
                self.name = name
            def __del__(self):
                print("ends", self.name, json, np)
        one, cycle = Ends("one"), Ends("cycle")
        cycle.itself = cycle
    """
    script = warm.script(source)
    done, plain = warm.run("--verbose", script), warm.plain(script)
    assert done.stdout.count("ends") == 2
    assert (done.stdout, done.stderr, done.returncode) == (plain.stdout, plain.stderr, plain.returncode)


def test_a_report_comes_last(warm: Any) -> None:
    source = "import atexit, sys; atexit.register(lambda: sys.stderr.write('mine\\n'))"
    done = warm.run("--report", "--verbose", warm.script(source))
    first, *rows = done.stderr.splitlines()
    assert first == "mine"
    assert [row.split()[1] for row in rows] == ["programs", "hits", "imports", "saved", "local"]


def test_a_report_is_json_for_programs(warm: Any) -> None:
    done = warm.run("--report=json", warm.script("import numpy, sys; print('mine', file=sys.stderr)"))
    first, report = done.stderr.splitlines()
    assert first == "mine"
    found = json.loads(report)
    assert (found["saved_seconds"], found["programs"], found["jax"]) == (0.0, [], None)
    assert found["imports"]["modules"] > 100
    assert found["imports"]["seconds"] > 0


def test_a_report_in_a_file_is_that_of_the_run(warm: Any) -> None:
    source = "import numpy, sys; sys.exit(3)"
    done = warm.run("--report=run.json", warm.script(source))
    assert (done.returncode, done.stdout) == (3, "")
    [line] = done.stderr.splitlines()
    path = Path(line.partition("report: ")[2])
    assert path.name == "run.json"
    found = json.loads(path.read_text())["otherData"]
    assert found["report"]["imports"]["modules"] > 100
    assert (found["programs"], found["dropped"]) == ([], 0)


def test_a_run_on_a_terminal_says_at_its_end_what_was_saved(warm: Any) -> None:
    source = "from jitclient.core.events import log; log.count('found', 'f()', 'memory', '', seconds=12.4)"
    outer, inner = pty.openpty()
    run = warm.start(warm.script(source), stdin=inner, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    with contextlib.suppress(OSError):  # all ends of the terminal are closed
        while part := os.read(outer, 4096):
            shown += part
    os.close(outer)
    warm.end(run)
    assert shown == b"jitserver: 12.4 s saved (1 program found); details: --report\r\n"


def test_a_command_that_gave_up_has_no_run(warm: Any) -> None:
    ran = warm.folder / "ran"
    command = Command(warm.script(f"open({str(ran)!r}, 'w')"), False, [])
    (path,) = (warm.folder / "jitserver").glob("run-*.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        request = Request.of_this_process(command, False)._replace(
            fds=[0, 1, 2], environment=[(k.encode(), v.encode()) for k, v in warm.variables.items()]
        )
        fd_passing.send(sock, request.plain(), [0, 1, 2])
        assert fd_passing.receive(sock)[0] == ("",)
    assert warm.run("--verbose", warm.script("pass", "other.py")).stderr == ""
    assert not ran.exists()


HIGHEST = """
import resource
highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
os.dup2(1, highest)
sys.argv.append(str(highest))
"""


def test_what_cannot_be_prepared_runs_in_a_process_of_its_own(warm: Any) -> None:
    script = warm.script("import os, sys; os.write(int(sys.argv[1]), b'written')")
    done = warm.run("--verbose", script, before=HIGHEST)
    assert (done.returncode, done.stdout) == (0, "written")
    assert "the run's process cannot be prepared: Invalid argument" in done.stderr


def test_a_run_notes_the_files_that_it_executes(warm: Any) -> None:
    notes = warm.folder / "notes"
    notes.write_bytes(bytes(1 << 16))
    warm.script("VALUE = 1", "own.py")
    warm.script("VALUE = 2", "forked.py")
    warm.script("VALUE = (", "broken.py")
    script = warm.script("""
import os, own
try:
    import broken
except SyntaxError:
    pass
if not os.fork():
    import forked
    os._exit(0)
os.wait()
""")
    for option in ("--verbose", "--fresh"):
        done = warm.run(option, f"--files={notes}", script)
        assert (done.stderr, done.returncode) == ("", 0)
    lines = [line.decode().partition(" ") for line in notes.read_bytes().rstrip(b"\0").split(b"\0")]
    found = [Path(path).name for _, _, path in lines if path.startswith(str(warm.folder))]
    # The second run, like one that starts again in a fresh process, adds to the notes.
    assert found == [Path(script).name, "own.py", "broken.py"] * 2
    assert int(lines[0][0]) == Path(script).stat().st_mtime_ns
