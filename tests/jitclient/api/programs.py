"""Small programs, as data: what one of them does must not depend on how it is run.

A launcher makes the command line from flags of the interpreter and what one would write after `python`.
"""

import dataclasses
import importlib.util
import io
import marshal
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...prepared import prepared

Launcher = Callable[[Sequence[str], Sequence[str]], list[str]]


def python(flags: Sequence[str], program: Sequence[str]) -> list[str]:
    """Plain Python."""
    return [sys.executable, *flags, *program]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, and how it is started.

    Attributes:
        source: of `program.py`.
        command: what one writes after `python`.
        files: further files, by path.
        links: symbolic links, by path.
        flags: of the interpreter.
        env: further variables.
        stdin: what it reads; on a terminal, typed once it has printed a line.
        signals: sent one by one, each once the program has printed a further line.
        merged: whether stdout and stderr are one file, so that their order counts.
        on_terminal: whether stdin, stdout and stderr are a terminal.
    """

    source: str | bytes = ""
    command: tuple[str, ...] = ("program.py",)
    files: Mapping[str, str | bytes] = dataclasses.field(default_factory=dict)
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    flags: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stdin: str = ""
    signals: tuple[int, ...] = ()
    merged: bool = False
    on_terminal: bool = False

    def write(self, folder: Path) -> None:
        """Write its files."""
        for name, content in {"program.py": self.source, **self.files}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(textwrap.dedent(content).encode() if isinstance(content, str) else content)
        for name, target in self.links.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(target)

    def run(self, folder: Path, launcher: Launcher, env: Mapping[str, str] | None = None) -> tuple[bytes, bytes, int]:
        """Return the program's stdout and stderr, and its exit status, negative for a signal."""
        command = launcher(self.flags, self.command)
        environment = {**os.environ, **self.env, **(env or {})}
        if self.on_terminal:
            return _on_terminal(command, folder, environment, self.stdin)
        with subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.merged else subprocess.PIPE,
        ) as process:
            assert process.stdout
            lines = []
            try:
                for number in self.signals:
                    lines.append(process.stdout.readline())
                    process.send_signal(number)
                out, err = process.communicate(self.stdin.encode() or None, timeout=100)
            finally:
                process.kill()
        return b"".join(lines) + out, err or b"", process.returncode


SESSION = """
import signal
os.login_tty({terminal})
signal.signal(signal.SIGINT, signal.SIG_IGN)
if program := os.fork():
    os.write({tells}, b"%d" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
    os.read({told}, 1)
    os._exit(0)
os.close({tells}), os.close({told})
signal.signal(signal.SIGINT, signal.SIG_DFL)
"""
"""Leader of a session: its exit drops what the terminal has not passed on, so it exits once all has been read."""


def _on_terminal(
    command: list[str], folder: Path, environment: Mapping[str, str], stdin: str
) -> tuple[bytes, bytes, int]:
    outer, inner = pty.openpty()
    status, tells = os.pipe()
    told, ends = os.pipe()
    theirs = (inner, tells, told)
    command = prepared(SESSION.format(terminal=inner, tells=tells, told=told), *command)
    with subprocess.Popen(command, cwd=folder, env=environment, pass_fds=theirs) as process:
        for end in theirs:
            os.close(end)
        try:
            shown = b""
            while outer in select.select([outer, status], [], [])[0]:
                shown += os.read(outer, 1 << 16)
                if stdin and b"\n" in shown:
                    os.write(outer, stdin.encode())
                    stdin = ""
            returned = int(os.read(status, 100))
        finally:
            process.kill()
            for end in (outer, status, ends):
                os.close(end)
    return shown, b"", returned


def _archive(files: Mapping[str, str]) -> bytes:
    """A zip file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def _compiled(source: str) -> bytes:
    """A .pyc file."""
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, "program.py", "exec"))


PACKAGE = {
    "pack/__init__.py": "print('package', __name__)\n",
    "pack/__main__.py": """
        import sys
        from . import part
        from .part import value

        print(__name__, __package__, __spec__.name, sys.argv[1:], value, part.__name__)
    """,
    "pack/part.py": "value = 7\nprint('part', __name__)\n",
    "pack/broken.py": "def f():\n    return 1 / 0\n\nf()\n",
}

INTERRUPTED = """
    import sys, threading, time
    def say(main, thread):
        state = lambda: open(f"/proc/self/task/{thread}/stat").read().rpartition(")")[2].split()[0]
        while sys._current_frames()[main].f_lineno != 9 or state() != "S":
            time.sleep(0.01)
        print("ready", flush=True)
    threading.Thread(target=say, args=[threading.get_ident(), threading.get_native_id()]).start()
    time.sleep(60)
"""
"""The program says so when it sleeps: Python misses a signal that comes just before."""

PLAIN_PYTHON: dict[str, Program] = {
    # ---- the module __main__
    "nothing": Program(),
    "globals": Program("""
        print(list(globals()))
        print(__name__, __file__, __doc__, __package__, __spec__, __cached__, __builtins__, __annotations__)
        print(type(__loader__).__name__, __loader__.name, __loader__.path, __loader__.get_source("__main__"))
    """),
    "docstring": Program('"""Print me."""\nprint(__doc__)\n'),
    "annotations": Program("x: int = 3\nprint(__annotations__)\n"),
    "main_guard": Program("""
        def main():
            return print("main", __name__)

        if __name__ == "__main__":
            main()
    """),
    "module_is_main": Program("""
        import sys, __main__
        x = 1
        print(__main__.x, sys.modules["__main__"].__dict__ is globals(), sys.modules[__name__] is __main__)
    """),
    "imports_itself": Program("""
        print("loaded as", __name__)
        if __name__ == "__main__":
            import program
            print(program.__name__, program.__file__, hasattr(program, "program"))
    """),
    "globals_at_exit": Program("""
        import atexit
        atexit.register(lambda: print(sorted(name for name in globals() if name.startswith("__"))))
    """),
    "deletion_at_exit": Program("""
        class Noisy:
            def __init__(self, name):
                self.name = name
            def __del__(self):
                print("deleted", self.name)
        first, second = Noisy("first"), Noisy("second")
        del first
        print("end")
    """),
    "get_source": Program("""
        import inspect

        class Model:
            x = 1

        def f(a, b):  # a comment
            return a + b

        print(inspect.getsource(f), inspect.getsource(Model), inspect.getfile(Model), inspect.getmodule(f))
        print(inspect.getsourcelines(f)[1], inspect.getcomments(Model))
    """),
    "pickle": Program("""
        import dataclasses, pickle

        @dataclasses.dataclass
        class Point:
            x: int
            y: int

        sent = pickle.dumps(Point(1, 2))
        print(sent, pickle.loads(sent), Point, Point.__module__, Point.__qualname__)
    """),
    "type_hints": Program("""
        from __future__ import annotations
        import typing

        class A:
            other: B
        class B: ...
        print(typing.get_type_hints(A), typing.NamedTuple("N", [("x", int)]).__module__)
    """),
    # ---- arguments, paths, flags, environment
    "arguments": Program(
        "import sys\nprint(sys.argv)\n",
        command=("program.py", "-m", "--no-jit", "--", "--report", "", "a b", "é", "-h"),
    ),
    "path": Program("import sys\nprint(sys.path)\n"),
    "relative_path": Program(
        files={
            "a/script.py": "import sys, near\nprint(__file__, sys.argv, sys.path[0], near.__file__)\n",
            "a/near.py": "",
        },
        command=("./a/../a/script.py",),
    ),
    "absolute_path": Program("import sys\nprint(__file__, sys.argv)\n", command=("/proc/self/cwd/program.py",)),
    "link": Program(
        links={"elsewhere/link.py": "../real/script.py"},
        files={"real/script.py": "import sys, near\nprint(__file__, sys.path[0], near.x)\n", "real/near.py": "x = 1\n"},
        command=("elsewhere/link.py",),
    ),
    "no_suffix": Program(files={"tool": "import sys\nprint(__file__, __loader__.path, sys.argv)\n"}, command=("tool",)),
    "safe_path": Program(
        "import sys\nprint(sys.path, sys.flags.safe_path)\nimport near\n", flags=("-P",), files={"near.py": ""}
    ),
    "safe_path_variable": Program("import sys\nprint(sys.path)\n", env={"PYTHONSAFEPATH": "1"}),
    "flags": Program(
        "import sys\nassert False\nprint(sys.flags, sys.warnoptions, __debug__)\n", flags=("-O", "-W", "ignore", "-B")
    ),
    "settings": Program("""
        import signal, sys, threading
        print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.gettrace(), sys.getprofile(), sys.executable)
        print({number: signal.getsignal(number) for number in (2, 10, 13, 15, 17)}, len(threading.enumerate()))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.excepthook, sys.displayhook, sys.flags)
    """),
    "environment": Program("import os\nprint(sorted(os.environ.items()), os.getcwd(), os.umask(0))\n"),
    "descriptors": Program("import os\nprint(sorted(os.listdir('/proc/self/fd'), key=int))\n"),
    "hash_seed": Program("print(list({'a', 'b', 'c', 'd'}), hash('x'))\n", env={"PYTHONHASHSEED": "7"}),
    "random_seed": Program("import random\nrandom.seed(3)\nprint(random.random())\n"),
    "sibling": Program("import near\nprint(near.value, near.__file__)\n", files={"near.py": "value = 5\n"}),
    "runs_another": Program(
        "import runpy\nprint(runpy.run_path('other.py', run_name='__main__')['x'])\n",
        files={"other.py": "import sys\nx = __name__, __file__, sys.argv\n"},
    ),
    # ---- what is wrong with it
    "error": Program("""
        def f(x):
            return g(x) + 1

        def g(x):
            return 1 / x

        print("before")
        f(0)
    """),
    "error_in_order": Program("print('out')\nraise ValueError('err')\n", merged=True),
    "chained_errors": Program("""
        def f():
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("no such key") from error

        try:
            f()
        except ValueError:
            raise RuntimeError("again")
    """),
    "error_group": Program("""
        error = ValueError("one")
        error.add_note("a note")
        raise ExceptionGroup("several", [error, ExceptionGroup("more", [TypeError("two")])])
    """),
    "error_of_library": Program("import json\njson.loads('{')\n"),
    "error_without_text": Program("""
        class Silent(Exception):
            def __str__(self):
                raise RuntimeError("no text")
        raise Silent
    """),
    "error_while_handling": Program("""
        import sys, traceback
        try:
            1 / 0
        except ZeroDivisionError as error:
            traceback.print_exc()
            print(traceback.format_tb(error.__traceback__), sys.exc_info()[0])
        print(sys.exc_info())
    """),
    "last_error": Program("""
        import atexit, sys
        atexit.register(lambda: print(sys.last_type, sys.last_value, sys.last_traceback.tb_frame.f_code.co_name))
        raise ValueError("x")
    """),
    "syntax_error": Program("x = 1\nif x\n    print(x)\n"),
    "unclosed": Program("x = (1,\n     2\n"),
    "indentation_error": Program("def f():\nreturn 1\n"),
    "syntax_error_in_import": Program("import near\n", files={"near.py": "x = = 1\n"}),
    "undecodable": Program(b"x = 1\nprint('\xe9')\n"),
    "declared_encoding": Program(b"# coding: latin-1\nprint(ascii('\xe9'))\nraise ValueError('\xe9')\n"),
    "wrong_encoding": Program(b"# coding: no-such\nprint(1)\n"),
    "byte_order_mark": Program(b"\xef\xbb\xbfprint('marked')\n"),
    "null_byte": Program(b"print(1)\nx = '\0'\n"),
    "line_ends": Program(b"print(1)\r\nif True:\r\n    print('''a\r\nb''')\r\n1 / 0"),
    "missing": Program(command=("absent.py", "a")),
    "missing_in_folder": Program(command=("./no/such/absent.py",)),
    "empty_folder": Program(files={"folder/near.py": ""}, command=("folder",)),
    # ---- how it ends
    "exit_status": Program("import sys\nsys.exit(3)\n"),
    "exit_message": Program("import sys\nprint('out')\nsys.exit('the reason')\n"),
    "exit_none": Program("raise SystemExit\n"),
    "exit_large": Program("raise SystemExit(256 + 7)\n"),
    "exit_negative": Program("raise SystemExit(-1)\n"),
    "exit_object": Program("raise SystemExit({'a': 1})\n"),
    "exit_builtin": Program("try:\n    exit(4)\nfinally:\n    print('finally')\n"),
    "exit_in_function": Program("""
        import atexit, sys
        atexit.register(print, "at exit")
        def f():
            sys.exit(5)
        f()
    """),
    "exit_at_once": Program("import atexit, os\natexit.register(print, 'never')\nos._exit(7)\n"),
    "atexit_order": Program("""
        import atexit, weakref
        class Thing: ...
        thing = Thing()
        atexit.register(print, "first")
        weakref.finalize(thing, print, "finalized")
        atexit.register(divmod, 1, 0)
        atexit.register(print, "last")
        raise ValueError("uncaught")
    """),
    "exception_hook": Program("""
        import sys
        def hook(kind, error, traceback):
            print("hook", kind, error, traceback.tb_lineno, traceback.tb_next, sys.exc_info())
        sys.excepthook = hook
        1 / 0
    """),
    "failing_hook": Program("import sys\nsys.excepthook = lambda *_: [][0]\n1 / 0\n"),
    "exiting_hook": Program("import sys\nsys.excepthook = lambda *_: sys.exit(9)\n1 / 0\n"),
    "no_hook": Program("import sys\ndel sys.excepthook\n1 / 0\n"),
    "interrupt": Program("import atexit\natexit.register(print, 'at exit')\nraise KeyboardInterrupt\n"),
    "interrupted": Program(INTERRUPTED, signals=(signal.SIGINT,)),
    "interrupt_caught": Program(
        """
        import time
        try:
            print("ready", flush=True)
            while True:
                time.sleep(0.1)
        except KeyboardInterrupt:
            print("caught")
        """,
        signals=(signal.SIGINT,),
    ),
    "terminated": Program("import time\nprint('ready', flush=True)\ntime.sleep(60)\n", signals=(signal.SIGTERM,)),
    "signal_handlers": Program(
        """
        import signal, sys, time
        got = []
        signal.signal(signal.SIGUSR1, lambda number, frame: got.append((number, frame.f_code.co_name)))
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(len(got)))
        def wait():
            print("ready", flush=True)
            while not got:
                time.sleep(0.01)
        wait()
        print(got, flush=True)
        while True:
            time.sleep(0.1)
        """,
        signals=(signal.SIGUSR1, signal.SIGTERM),
    ),
    "killed": Program("import os\nprint('lost')\nos.kill(os.getpid(), 9)\n"),
    "aborted": Program("import os\nos.abort()\n"),
    "broken_pipe": Program("""
        import os, sys
        r, w = os.pipe()
        os.dup2(w, 1)
        os.close(w), os.close(r)
        print("x" * 100_000)
    """),
    "broken_pipe_at_exit": Program(
        "import os\nr, w = os.pipe()\nos.dup2(w, 1)\nos.close(w), os.close(r)\nprint('x')\n"
    ),
    "closed_stdout": Program("import sys\nsys.stdout.close()\n"),
    "no_stderr": Program("import sys\nsys.stderr = None\n1 / 0\n"),
    # ---- threads and processes
    "threads": Program("""
        import threading
        def work():
            threading.main_thread().join()
            print("thread", threading.current_thread().name, threading.main_thread().is_alive())
        threading.Thread(target=work).start()
        print("end of main", threading.current_thread().name, threading.current_thread() is threading.main_thread())
    """),
    "error_in_thread": Program("""
        import threading
        def work():
            raise ValueError("in a thread")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """),
    "executor_at_exit": Program("""
        import atexit
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(2)
        atexit.register(print, "at exit")
        pool.submit(lambda: print("task"))
        raise SystemExit(2)
    """),
    "spawn": Program("""
        import multiprocessing
        def work(x):
            return x * 2, __name__
        print("module", __name__, flush=True)  # the pool ends its process, perhaps before that writes what it holds
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """),
    "spawn_of_module": Program(
        files={
            "pack/__init__.py": "",
            "pack/job.py": """
                import multiprocessing
                from . import other
                def work(x):
                    return x + other.ONE, __name__, __spec__.name
                if __name__ == "__main__":
                    with multiprocessing.get_context("spawn").Pool(1) as pool:
                        print(pool.map(work, [1]))
            """,
            "pack/other.py": "ONE = 1\n",
        },
        command=("-m", "pack.job"),
    ),
    "fork_pool": Program("""
        import multiprocessing
        def work(x):
            return x * 2
        if __name__ == "__main__":
            with multiprocessing.get_context("fork").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """),
    "forkserver": Program("""
        import multiprocessing
        def work(x):
            return x * 2
        if __name__ == "__main__":
            with multiprocessing.get_context("forkserver").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """),
    "process_error": Program("""
        import multiprocessing
        def work():
            raise SystemExit(3)
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=work)
            process.start()
            process.join()
            print(process.exitcode)
    """),
    "fork": Program("""
        import atexit, os, sys
        atexit.register(print, "at exit")
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """),
    "subprocess": Program("""
        import subprocess, sys
        asked = [sys.executable, "-c", "import sys; print(sys.path[0] == '', sys.argv)"]
        print(subprocess.run(asked, capture_output=True))
    """),
    "asyncio": Program("""
        import asyncio
        async def main():
            await asyncio.sleep(0)
            raise ValueError("in a task")
        asyncio.run(main())
    """),
    "asyncio_interrupted": Program(
        """
        import asyncio
        async def main():
            try:
                print("ready", flush=True)
                while True:
                    await asyncio.sleep(0.1)
            finally:
                print("cleaned up")
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """,
        signals=(signal.SIGINT,),
    ),
    # ---- what it reads and writes
    "input": Program("print([input('name? '), input()])\ninput()\n", stdin="a\nb\n"),
    "stdin": Program(
        "import sys\nprint(sys.stdin.read().upper(), sys.stdin.fileno(), sys.stdin.isatty())\n", stdin="a\nb"
    ),
    "order_of_streams": Program(
        "import os, sys\nprint('a')\nprint('b', file=sys.stderr)\nos.write(1, b'c')\nprint('d', flush=True)\n",
        merged=True,
    ),
    "unbuffered": Program("import os\nprint('a')\nos.write(1, b'b')\nprint('c')\n", flags=("-u",)),
    "logging": Program(
        "import logging\nlogging.warning('careful')\nlogging.basicConfig()\nlogging.error('%s', __name__)\n"
    ),
    "warnings": Program("""
        import warnings
        def old():
            warnings.warn("old is old", DeprecationWarning, stacklevel=2)
        warnings.warn("here")
        old()
        warnings.warn("later", FutureWarning)
        "\\d"
    """),
    "warnings_as_errors": Program("import warnings\nwarnings.warn('here')\n", flags=("-W", "error")),
    "unclosed_file": Program("open('program.py')\nprint('done')\n", flags=("-X", "dev")),
    "debugger": Program("x = 5\nbreakpoint()\nx += 1\nprint(x)\n", stdin="p x\nx = 7\nlist\nnext\nc\n"),
    "debugger_quits": Program("def f(y):\n    breakpoint()\n    return y\n\nf(2)\n", stdin="args\nq\n"),
    "terminal": Program(
        """
        import os, sys
        print(input(f'{sys.stdin.isatty()}, {os.isatty(1)}, {os.get_terminal_size()}\\n'))
        """,
        stdin="typed\n",
        on_terminal=True,
    ),
    "interrupted_on_terminal": Program(
        """
        import time
        try:
            print('ready')
            while True:
                time.sleep(0.1)
        except KeyboardInterrupt:
            print('caught')
        """,
        stdin="\x03",
        on_terminal=True,
    ),
    "interactive": Program("x = 5\nprint('end')\n", flags=("-i", "-q"), stdin="print(x, __name__)\n"),
    "interactive_after_error": Program(
        "def f(x):\n    return 1 / x\n\nf(0)\n", flags=("-i",), stdin="import pdb\npdb.pm()\np x\n"
    ),
    "interactive_after_exit": Program("raise SystemExit(3)\n", flags=("-i",), stdin="print('still here')\n"),
    "interactive_after_exit_of_module": Program(
        "raise SystemExit(3)\n", flags=("-i",), command=("-m", "program"), stdin="print('still here')\n"
    ),
    "deep_recursion": Program("""
        import traceback
        def f(n):
            return n and 1 + f(n - 1)
        print(f(900))
        try:
            f(10_000)
        except RecursionError as error:
            print(error, len(traceback.format_exception(error)) > 3)
    """),
    "line_cache": Program("""
        import linecache, sys
        print(linecache.getline(__file__, 2), sys._getframe().f_code.co_filename == __file__, sys._getframe().f_lineno)
        exec(compile("def g():\\n    1 / 0", "made.py", "exec"))
        g()
    """),
    "descriptor_as_file": Program(files={"run.py": "print(__file__, __name__)\n"}, command=("/proc/self/cwd/run.py",)),
    # ---- modules, packages, folders, archives
    "module": Program(
        "import sys\nprint(__name__, __file__, __spec__.name, __package__, sys.argv, sys.path[0])\n"
        "print(list(globals()), __cached__)\n",
        command=("-m", "program", "-m", "a"),
    ),
    "package": Program(files=PACKAGE, command=("-m", "pack", "--x", "1")),
    "part_of_package": Program(files=PACKAGE, command=("-m", "pack.part")),
    "error_in_package": Program(files=PACKAGE, command=("-m", "pack.broken")),
    "missing_part": Program(files=PACKAGE, command=("-m", "pack.absent")),
    "missing_module": Program(command=("-m", "absent")),
    "package_without_main": Program(files={"empty/__init__.py": ""}, command=("-m", "empty")),
    "module_with_suffix": Program(command=("-m", "program.py")),
    "failing_package": Program(files={"pack/__init__.py": "1 / 0\n", "pack/x.py": ""}, command=("-m", "pack.x")),
    "module_of_library": Program(command=("-m", "json.tool"), stdin='{"a": 1}'),
    "syntax_error_in_module": Program("x = = 1\n", command=("-m", "program")),
    "module_exits": Program("import sys\nsys.exit('the reason')\n", command=("-m", "program")),
    "module_interrupted": Program("raise KeyboardInterrupt\n", command=("-m", "program")),
    "module_with_hook": Program(
        "import sys\nsys.excepthook = lambda *_: print(sys.exc_info(), _[2].tb_frame.f_code.co_name)\n1 / 0\n",
        command=("-m", "program"),
    ),
    "module_with_failing_hook": Program(
        "import sys\nsys.excepthook = lambda *_: [][0]\n1 / 0\n", command=("-m", "program")
    ),
    "module_on_safe_path": Program(flags=("-P",), command=("-m", "program")),
    "folder": Program(
        files={
            "app/__main__.py": "import sys, near\nprint(__file__, __spec__.name, [__package__], sys.argv, sys.path)\n",
            "app/near.py": "",
        },
        command=("app", "x"),
    ),
    "error_in_folder": Program(files={"app/__main__.py": "1 / 0\n"}, command=("./app",), flags=("-P",)),
    "archive": Program(
        files={
            "app.zip": _archive(
                {
                    "__main__.py": "import sys, near\nprint(__file__, sys.argv, sys.path[0])\nnear.f()\n",
                    "near.py": "def f():\n    1 / 0\n",
                }
            )
        },
        command=("app.zip", "x"),
    ),
    "compiled": Program(
        files={"program.pyc": _compiled("print(__name__, __file__, type(__loader__).__name__)\n1 / 0\n")},
        command=("program.pyc",),
    ),
}
"""By name. None needs more than Python."""

WITH_JAX: dict[str, Program] = {
    "jit": Program("""
        import functools
        import jax, jax.numpy as jnp
        from jax import jit

        @jit
        def f(x, scale=2.0):
            "What it does."
            return {"y": x * scale, "n": x.sum()}

        @functools.partial(jax.jit, static_argnames="n", donate_argnums=0)
        def power(x, n):
            return x**n

        print(f(jnp.arange(3.0)), f(jnp.arange(2), scale=3.0)["y"], power(jnp.arange(3), n=2))
        print(f.__name__, f.__doc__, jax.grad(lambda x: f(x)["n"])(1.5), jax.vmap(power, (0, None))(jnp.arange(3), 3))
    """),
    "sibling_jits": Program(
        "import near\nprint(near.doubled(21))\n",
        files={"near.py": "import jax\n\n@jax.jit\ndef doubled(x):\n    return x * 2\n"},
    ),
    "jit_in_package": Program(
        files={
            "pack/__init__.py": "",
            "pack/__main__.py": "from .model import forward\nprint(forward(3.0))\n",
            "pack/model.py": "import jax\nSCALE = 2\n\n@jax.jit\ndef forward(x):\n    return x * SCALE\n",
        },
        command=("-m", "pack"),
    ),
    "x64_by_variable": Program("""
        import os
        os.environ["JAX_ENABLE_X64"] = "1"
        import jax
        print(jax.jit(lambda x: x / 3)(1.0), jax.jit(lambda x: x + 1)(1).dtype)
    """),
    "callbacks": Program("""
        import jax

        @jax.jit
        def f(x):
            jax.debug.print("in the program {}", x)
            return jax.pure_callback(lambda v: v * 2, x, x)

        print(f(1.5))
    """),
    "error_after_jit": Program("""
        import atexit
        import jax
        f = jax.jit(lambda x: x + 1)
        atexit.register(lambda: print("at exit", f(2)))
        print(f(1))
        raise ValueError(str(f(3)))
    """),
    "jit_in_thread": Program("""
        import threading
        import jax
        f = jax.jit(lambda x: x * x)
        threads = [threading.Thread(target=lambda n=n: found.append(float(f(n)))) for n in range(4)]
        found = []
        [thread.start() for thread in threads], [thread.join() for thread in threads]
        print(sorted(found))
    """),
    "explicit": Program("""
        import jax, jitclient

        @jitclient.jit
        def f(x):
            return x + 1

        print(f(1), type(f).__module__)
        with jitclient.install():
            print(type(jax.jit(abs)).__module__)
    """),
}
"""By name. They need a daemon, and end with the same numbers with and without one."""
