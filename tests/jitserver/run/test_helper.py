"""The imports of a helper, and when it leaves a run to a process of its own, or exits."""

import contextlib
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...sampled import sampled
from .conftest import LOADED, SECONDS, install, learn, learnt, unfit


def test_the_first_run_is_fresh_and_the_next_is_not(cold: Any) -> None:
    script = cold.script("print('done')")
    first = cold.run("--verbose", script)
    assert first.stdout == "done\n"
    assert first.stderr == (
        "jitserver: the program runs in a fresh process: "
        "no helper is ready for this command. A helper is started for the next one.\n"
    )
    cold.warm()
    second = cold.run("--verbose", script)
    assert (second.stdout, second.stderr) == ("done\n", "")


@pytest.mark.slow
def test_without_a_folder_for_a_helper_there_is_none(cold: Any) -> None:
    script = cold.script("import shutil; shutil.rmtree('jitserver'); print('done')")
    done = cold.run(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.slow
def test_one_whose_folder_was_removed_ends_and_leaves_the_next_alone(cold: Any, until: Any) -> None:
    cold.warm()
    (helper,) = cold.helpers()
    shutil.rmtree(cold.folder / "jitserver")
    cold.warm()
    with contextlib.suppress(ProcessLookupError):  # it may have seen that already
        os.kill(helper, signal.SIGCHLD)  # it looks at once
    until(lambda: not cold.is_alive(helper), "its end")
    (following,) = cold.helpers()
    assert cold.run("--verbose", cold.script("pass")).stderr == ""
    os.kill(following, signal.SIGTERM)
    until(lambda: not cold.is_alive(following), "the end of the next")
    assert not list((cold.folder / "jitserver").glob("run-*"))


@pytest.mark.slow
def test_one_that_hangs_is_ended_and_replaced(cold: Any, until: Any) -> None:
    cold.warm()
    (helper,) = cold.helpers()
    os.kill(helper, signal.SIGSTOP)
    script = cold.script("print('done')")
    done = cold.run("--verbose", script)  # which reads its output until all have closed it
    assert done.stdout == "done\n"
    assert "did not answer within 10 s and was killed" in done.stderr
    until(lambda: not cold.is_alive(helper), "its end")
    cold.warm()


@pytest.mark.slow
def test_it_imports_what_a_run_has_imported(cold: Any, site: Path, until: Any) -> None:
    install(site, "installed", "")
    cold.script("", "own.py")
    cold.warm()
    cold.run(cold.script("import installed, own"))
    learn(cold, until, "installed")
    assert "own" not in learnt(cold)
    assert unfit(cold) == {}
    script = cold.script(LOADED.format(names=["installed", "own"]))
    assert cold.run("--verbose", script).stdout == "['installed']\n"


@pytest.mark.slow
def test_a_helper_that_starts_again_keeps_nothing_of_an_import(cold: Any, site: Path, until: Any) -> None:
    """Otherwise the import would seem to change nothing when it is tried again."""
    install(site, "masks", "import os; os.umask(0o077)")

    def inherited(process: Any) -> list[str]:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return [line for line in lines if line.startswith("Umask:")]

    script = cold.script("import masks, os; print(os.umask(0))")
    until(lambda: not cold.compared(script), "a run that begins in a helper", SECONDS)
    assert "masks" in unfit(cold)
    (helper,) = cold.helpers()
    assert inherited(helper) == inherited("self")


@pytest.mark.core
def test_each_run_has_random_numbers_of_its_own_also_after_a_helper_has_imported_more(
    cold: Any, site: Path, until: Any
) -> None:
    cold.warm()
    install(site, "installed", "import numpy as np, random\nOWN, NUMPYS = random.Random(), np.random.default_rng()")
    learn(cold, until, "installed")
    install(site, "more", "")
    learn(cold, until, "more")
    source = """
        import installed, numpy as np, random
        print(random.random(), np.random.rand(), installed.OWN.random(), installed.NUMPYS.random())
        print(installed.NUMPYS.spawn(1)[0].random())
    """
    script = cold.script(source)
    runs = [cold.run("--verbose", script) for _ in range(2)]
    assert [run.stderr for run in runs] == ["", ""]
    first, second = (run.stdout.split() for run in runs)
    assert len(first) == 5
    assert set(first).isdisjoint(second)


SEEDED = """
import random
import numpy as np

random.seed(5)
np.random.seed(5)
OWN = random.Random()
OWN.seed(5)
"""


@pytest.mark.slow
def test_what_an_import_seeds_stays_seeded(cold: Any, site: Path, until: Any) -> None:
    cold.warm()
    install(site, "seeds", SEEDED)
    learn(cold, until, "seeds")
    script = cold.script(
        "import random, seeds, numpy as np; print(np.random.rand(), random.random(), seeds.OWN.random())"
    )
    of_five = random.Random(5).random()
    runs = [cold.run("--verbose", script) for _ in range(2)]
    assert {run.stdout for run in runs} == {f"{np.random.RandomState(5).rand()} {of_five} {of_five}\n"}
    assert {run.stderr for run in runs} == {""}


MISBEHAVED = {
    "import subprocess; subprocess.run(['pwd'], stdout=subprocess.DEVNULL)": "starts a process",
    "import os; os.write(2, b'hello')": "changes the printed output",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "starts a thread",
    "import random; random.seed(5)": "seeds random numbers",
    "import numpy; numpy.random.seed(5)": "seeds random numbers",
    "import logging; logging.basicConfig()": "changes logging",
    "import codecs; codecs.register(lambda _: None)": "registers a codec",
    "import wave; wave.WAVE_FORMAT_PCM = 5": "changes wave.WAVE_FORMAT_PCM",
    "import warnings; warnings.filters.insert(0, ('ignore', None, type('Own', (Warning,), {}), None, 0))": (
        "changes warning filters"
    ),
    "import os; os.environb[b'SET_BY_IMPORT'] = b'x'": "changes environment variables",
    "import os; here = os.getcwd()": "reads the working directory",
    "import sys; name = sys.argv[0]": "reads the arguments of the program",
    "import os; everything = dict(os.environ)": "reads all environment variables",
    "import jax; jax.devices()": "starts a backend of JAX",
    "import jax; jax.config.update('jax_enable_x64', True)": "changes JAX's setting jax_enable_x64",
}
"""Imports, and why they are left to the runs. `test_process_state.py` has all kinds of state."""


@pytest.mark.parametrize("source", sampled(list(MISBEHAVED), 2))
def test_it_leaves_alone_what_only_a_run_may_do(source: str, cold: Any, site: Path, until: Any) -> None:
    names = ["jax"] if "jax" in source else []
    install(site, "misbehaved", source)
    install(site, "well", "")
    learn(cold, until, *names, "misbehaved", "well")
    assert unfit(cold) == {"misbehaved": f"misbehaved {MISBEHAVED[source]}"}


@pytest.mark.slow
def test_a_package_that_another_imports_keeps_its_own_reason(cold: Any, site: Path, until: Any) -> None:
    install(site, "misbehaved", "import wave; wave.WAVE_FORMAT_PCM = 5")
    install(site, "uses", "import misbehaved")
    learn(cold, until, "misbehaved", "uses")
    assert unfit(cold) == {
        "misbehaved": "misbehaved changes wave.WAVE_FORMAT_PCM",
        "uses": "uses changes wave.WAVE_FORMAT_PCM",
    }


@pytest.mark.slow
def test_it_leaves_out_a_package_with_many_unfit_modules_and_no_other(cold: Any, site: Path, until: Any) -> None:
    (site / "many").mkdir()
    install(site, "many/__init__", "")
    install(site, "well", "")
    parts = [f"part_{number}" for number in range(20)]
    for part in parts:
        install(site, f"many/{part}", "print('hello')")
    cold.warm()
    cold.run(cold.script(f"from many import {', '.join(parts)}"))
    learn(cold, until, "well")
    assert [why for why in unfit(cold).values() if "changes the printed output" not in why] == []
    assert len(unfit(cold)) == 10
    script = cold.script(LOADED.format(names=["many", "many.part_0", "many.part_19", "well"]))
    assert cold.run("--verbose", script).stdout == "['many', 'well']\n"


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))"


@pytest.mark.slow
def test_where_no_verdict_can_be_written_runs_import_for_themselves(cold: Any, site: Path, until: Any) -> None:
    install(site, "well", "VALUE = 1")
    learn(cold, until, "well")
    before = set(cold.locks())
    script = cold.script("import well; print(well.VALUE)")
    cold.run(script, before=LIMITED)
    until(lambda: set(cold.locks()) - before, "a helper that can write 64 bytes")
    done = until(lambda: (run := cold.run("--verbose", script, before=LIMITED)) and not run.stderr and run, "it")
    assert done.stdout == "1\n"
    assert not list((cold.folder / "cache").glob("*/.verdict*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", ["import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_an_import_that_ends_the_process_is_left_to_the_runs(source: str, cold: Any, site: Path, until: Any) -> None:
    install(site, "ends", f"import sys\nif not sys.argv[0].endswith('first.py'): {source}")
    install(site, "well", "")
    cold.warm()
    cold.run(cold.script("import ends", "first.py"))
    learn(cold, until, "well")
    assert unfit(cold) == {"ends": "ends ends the process, or does not end"}


@pytest.mark.slow
def test_what_the_import_of_a_package_does_is_found_once(cold: Any, site: Path, until: Any) -> None:
    (site / "pack").mkdir()
    for name in ("first", "second", "third"):
        (site / "pack" / f"{name}.py").write_text("")
    (site / "pack" / "__init__.py").write_text("from pack import first, second, third; import well; print('hello')")
    install(site, "well", "")
    learn(cold, until, "pack", "well")
    assert unfit(cold) == {"pack": "pack changes the printed output"}


@pytest.mark.core
def test_it_serves_where_no_locale_is_set(cold: Any, site: Path, until: Any) -> None:
    cold.variables.update(LANG="", LC_ALL="", LC_CTYPE="")
    install(site, "misbehaved", "print('hello')")
    cold.warm()
    before = cold.helpers()
    learn(cold, until, "misbehaved")
    assert cold.helpers() == before  # it has begun again, and is like itself
    script = cold.script("import os, sys; print(sys.flags.utf8_mode, os.environ['LC_CTYPE'])")
    done = cold.run("--verbose", script)
    plain = cold.plain(script)
    assert (done.stderr, done.stdout) == ("", plain.stdout)


@pytest.mark.slow
def test_what_objects_print_as_they_end_is_written_where_a_package_keeps_the_stream(
    cold: Any, site: Path, until: Any
) -> None:
    cold.variables["PYTHONUNBUFFERED"] = ""
    install(site, "keeps", "import sys; STREAM = sys.stdout")
    learn(cold, until, "keeps")
    script = cold.script("""
        class Ends:
            def __del__(self):
                print("ends")
        one = Ends()
    """)
    done = cold.run("--verbose", script)
    assert (done.stdout, done.stderr) == ("ends\n", "")


@pytest.mark.slow
def test_a_read_variable_must_be_the_same(cold: Any, site: Path, until: Any) -> None:
    install(site, "reads", "import os; VALUE = os.environ.get('READ_BY_IMPORT')")
    learn(cold, until, "reads")
    script = cold.script("import reads; print(reads.VALUE)")
    assert cold.run("--verbose", script).stderr == ""
    other = cold.run("--verbose", script, env={"READ_BY_IMPORT": "x"})
    assert other.stdout == "x\n"
    assert "environment variable READ_BY_IMPORT" in other.stderr


@pytest.mark.slow
def test_a_file_of_the_working_folder_that_imports_look_for(cold: Any, site: Path, until: Any) -> None:
    install(site, "looks", "import os; FOUND = os.path.exists('looks.toml')")
    learn(cold, until, "looks")
    script = cold.script("import looks; print(looks.FOUND)")
    assert cold.run("--verbose", script).stderr == ""
    (cold.folder / "looks.toml").write_text("")
    done = cold.run("--verbose", script)
    assert done.stdout == "True\n"
    assert "imports read looks.toml in the working directory" in done.stderr


@pytest.mark.slow
def test_a_package_may_keep_the_streams_of_its_import(cold: Any, site: Path, until: Any) -> None:
    install(
        site,
        "keeps",
        """
        import sys
        def say(text, file=sys.stdout): file.write(text)
        def read(file=sys.stdin): return file.readline()
        say_bytes, read_bytes = sys.stdout.buffer.write, sys.stdin.buffer.read
    """,
    )
    learn(cold, until, "keeps")
    source = """
        import sys, keeps
        print("first")
        keeps.say("second\\n")
        print(keeps.read(), input(), sys.__stdin__.readline())
        sys.stdout.flush()
        keeps.say_bytes(keeps.read_bytes())
        assert keeps.say.__defaults__[0] is sys.stdout is sys.__stdout__
        keeps.say("last")
    """
    given = "a\nb\nc\n" + "d" * 100_000
    script = cold.script(source)
    plain = cold.plain(script, input=given)
    assert plain.stdout.startswith("first\nsecond\na\n b c\n\nd")
    done = cold.run("--verbose", script, input=given)
    assert (done.stdout, done.stderr) == (plain.stdout, "")


@pytest.mark.slow
def test_no_file_that_an_import_keeps_open_is_open_in_another_run(cold: Any, site: Path, until: Any) -> None:
    install(site, "first", "FILE = open('/dev/zero', 'rb')\ndef read(): return FILE.read(1)")
    install(site, "later", "FILE = open('/dev/zero', 'rb')\ndef read(): return FILE.read(1)")
    source = "import os; print([number for number in range(50) if os.path.exists(f'/proc/self/fd/{number}')])"
    for name in ("first", "later"):
        learn(cold, until, name)
        assert unfit(cold)[name] == f"{name} changes open file descriptors"
        script = cold.script(source)
        assert cold.run(script).stdout == cold.plain(script).stdout
        assert cold.run(cold.script(f"import {name}; print({name}.read())")).stdout == "b'\\x00'\n"


@pytest.mark.slow
def test_a_package_imports_others_in_its_own_order(cold: Any, site: Path, until: Any) -> None:
    source = """
        import ctypes

        get = ctypes.CDLL(None).getenv
        get.restype = ctypes.c_char_p
        VALUE = get(b"SET_BEFORE")
    """
    install(site, "configured", textwrap.dedent(source))
    (site / "configures").mkdir()
    (site / "configures" / "version.py").write_text("")
    (site / "configures" / "__init__.py").write_text(
        "import configures.version, os; os.environ['SET_BEFORE'] = 'x'; import configured"
    )
    learn(cold, until, "configures", "configured")
    assert unfit(cold) == {}
    done = cold.run("--verbose", cold.script("import configures, configured; print(configured.VALUE)"))
    assert (done.stdout, done.stderr) == ("b'x'\n", "")
    done = cold.run("--verbose", cold.script("import configured; print(configured.VALUE)"))
    assert done.stdout == "None\n"
    assert "environment variable SET_BEFORE" in done.stderr


CHANGES: dict[str, Callable[[Path], object]] = {
    "upgraded": lambda site: install(site, "package", "VERSION, DATA = 22, 'now'"),
    "removed": lambda site: (site / "package.py").unlink(),
    "newly installed": lambda site: (site / "other-1.0.dist-info").mkdir(),
    "changed data": lambda site: (site / "data.txt").write_text("later"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_it_notices_changed_packages(change: str, cold: Any, site: Path, until: Any) -> None:
    (site / "data.txt").write_text("now")
    install(site, "package", f"VERSION = 1; DATA = open({str(site / 'data.txt')!r}).read()")
    learn(cold, until, "package")
    script = cold.script("import package; print(package.VERSION, package.DATA)")
    assert cold.run("--verbose", script).stdout == "1 now\n"
    CHANGES[change](site)
    done = cold.run("--verbose", script)
    assert "has changed since it was imported" in done.stderr
    if change == "removed":
        assert "No module named 'package'" in done.stderr
    else:
        assert done.stdout == {"upgraded": "22 now\n", "changed data": "1 later\n"}.get(change, "1 now\n")
        until(lambda: not cold.run("--verbose", script).stderr, "a helper with what there is now")
        assert cold.run("--verbose", script).stdout == done.stdout


@pytest.mark.slow
def test_a_program_that_may_change_imports_runs_in_a_process_of_its_own(cold: Any) -> None:
    cold.warm()
    script = cold.script("import os\nos.environ['JAX_ENABLE_X64'] = '1'\nimport jax\nprint(jax.config.jax_enable_x64)")
    done = cold.run("--verbose", script)
    assert done.stdout == "True\n"
    assert done.stderr == f"jitserver: the program runs in a fresh process: {script}:2 may set environment variables\n"


@pytest.mark.slow
def test_other_settings_have_a_helper_of_their_own(cold: Any) -> None:
    cold.warm()
    script = cold.script("import os; print(os.environ.get('JAX_ENABLE_X64'), hash('x'))")
    x64 = {"JAX_ENABLE_X64": "1"}
    assert "no helper is ready" in cold.run("--verbose", script, env=x64).stderr
    cold.warm(x64)
    assert len(cold.helpers()) == 2
    assert cold.run(script, env=x64).stdout.startswith("1 ")
    assert cold.run(script).stdout.startswith("None ")


@pytest.mark.slow
def test_a_hash_seed_is_the_given_one(cold: Any) -> None:
    seed = {"PYTHONHASHSEED": "7"}
    cold.warm(seed)
    script = cold.script("print(hash('x'))")
    done = cold.run("--verbose", script, env=seed)
    plain = cold.plain(script, env=seed)
    assert (done.stdout, done.stderr) == (plain.stdout, "")


def test_only_its_user_can_reach_it(cold: Any) -> None:
    cold.warm()
    (socket,) = (cold.folder / "jitserver").glob("run-*.sock")
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700


@pytest.mark.slow
def test_another_user_is_shown_out(cold: Any) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can be another user")
    cold.warm()
    (socket,) = (cold.folder / "jitserver").glob("run-*.sock")
    for path in (cold.folder, socket.parent, socket):
        path.chmod(0o777)
    program = f"import os, socket; os.setuid(12345); s = socket.socket(1); s.connect({socket.name!r}); print(s.recv(1))"
    done = subprocess.run(  # from there, since folders above may be shut to others
        [sys.executable, "-c", program], cwd=socket.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "b''\n"


@pytest.mark.slow
def test_it_ends_with_the_daemon(cold: Any, new_daemon: Any, until: Any) -> None:
    with new_daemon(cold.variables["JITSERVER_ADDRESS"]):
        cold.warm()
        (pid,) = cold.helpers()
        assert cold.is_alive(pid)
    until(lambda: not cold.is_alive(pid), "its end")
    assert not list((cold.folder / "jitserver").glob("run-*.sock"))


IMPORTING = """
    import os, time
    if not os.path.exists("{0}/ended"):
        with open("{0}/importing", "w") as file:
            file.write(str(os.getpid()))
        while not os.path.exists("{0}/ended"):
            time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["a signal", "the daemon"])
def test_its_audit_ends_with_it(cause: str, cold: Any, site: Path, new_daemon: Any, until: Any) -> None:
    install(site, "slow", textwrap.dedent(IMPORTING.format(cold.folder)))
    (cold.folder / "ended").touch()
    with new_daemon(cold.variables["JITSERVER_ADDRESS"]):
        cold.warm()
        (pid,) = cold.helpers()
        os.kill(pid, signal.SIGSTOP)
        cold.run("--fresh", cold.script("import slow"))
        (cold.folder / "ended").unlink()
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGCHLD)  # it reads the history whenever it wakes
        importing = cold.folder / "importing"
        audit = int(until(lambda: importing.exists() and importing.read_text(), "the import"))
        assert audit != pid
        # A run does not wait for it.
        assert cold.run("--verbose", cold.script("pass")).stderr == ""
        if cause == "a signal":
            os.kill(pid, signal.SIGTERM)
            until(lambda: not cold.is_alive(pid), "its end")
    until(lambda: not cold.is_alive(pid) and not cold.is_alive(audit), "their end")
    assert not list((cold.folder / "jitserver").glob("run-*.*"))


def ask(cold: Any, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "jitserver", *words, "--json"],
        env=cold.variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_commands_list_helpers_and_stop_waits_for_them(cold: Any, new_daemon: Any) -> None:
    with new_daemon(cold.variables["JITSERVER_ADDRESS"]) as daemon:
        cold.warm()
        (pid,) = cold.helpers()
        (helper,) = ask(cold, "status")["helpers"]
        assert (helper["pid"], helper["daemon"]) == (pid, daemon.pid)
        assert 10e6 < helper["memory_bytes"] < 2e9
        assert 0 <= helper["idle_s"] <= helper["age_s"]
        assert ask(cold, "stop")["helpers"] == [pid]
    assert not cold.is_alive(pid)


@pytest.mark.slow
def test_stop_ends_a_helper_that_has_no_daemon(cold: Any) -> None:
    cold.warm()
    (pid,) = cold.helpers()
    assert ask(cold, "stop")["type"] == "DaemonUnavailable"
    assert not cold.is_alive(pid)


@pytest.mark.slow
def test_a_third_replaces_the_one_that_was_used_least_recently(cold: Any, until: Any) -> None:
    pids = []
    for value in "123":
        cold.warm(env={"JAX_DEFAULT_MATMUL_PRECISION": "highest", "LC_MESSAGES": value})
        pids += set(cold.helpers()) - {*pids}
    first, second, third = pids
    until(lambda: not cold.is_alive(first), "its end")
    assert cold.is_alive(second)
    assert cold.is_alive(third)


@pytest.mark.slow
def test_processes_have_titles(cold: Any, until: Any) -> None:
    cold.warm()
    (pid,) = cold.helpers()
    assert Path(f"/proc/{pid}/cmdline").read_text().startswith(f"jitserver.run.helper {cold.folder}/")
    script = cold.script("""
        import os, sys
        print(open(f"/proc/{os.getpid()}/cmdline").read().rstrip("\\0"))
        print(os.environ.get("SPT_NOENV"))
    """)
    done = cold.run("--verbose", script, "--lr", "0.1")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{sys.executable} {script} --lr 0.1", "None"]
    done = cold.run("--verbose", script, "odd \udcff")
    assert (done.stderr, done.stdout.splitlines()[0]) == ("", f"{sys.executable} {script} odd ?")


@pytest.mark.slow
def test_it_ends_where_its_folder_has_gone(cold: Any, until: Any) -> None:
    cold.warm()
    (pid,) = cold.helpers()
    shutil.rmtree(cold.folder / "jitserver")
    os.kill(pid, signal.SIGCHLD)  # it looks each minute, and whenever it wakes
    until(lambda: not cold.is_alive(pid), "its end")


@pytest.mark.slow
def test_a_run_outlives_its_helper(cold: Any, until: Any) -> None:
    cold.warm()
    process = cold.start("--verbose", cold.script("print('ready', flush=True); print(input())"))
    assert process.stdout.readline() == "ready\n"
    (pid,) = cold.helpers()
    os.kill(pid, signal.SIGTERM)
    until(lambda: not cold.is_alive(pid), "its end")
    done = cold.end(process, "typed\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "typed\n", "")


WITHOUT_RIGHTS = """
import ctypes
for right in (1, 2): ctypes.CDLL(None).prctl(24, right, 0, 0, 0)  # to enter every folder, which root has
"""


@pytest.mark.slow
def test_a_folder_that_only_who_is_in_it_can_enter(cold: Any, until: Any) -> None:
    script = cold.script("print('ran')")
    until(lambda: not cold.run("--verbose", script, before=WITHOUT_RIGHTS).stderr, "a helper")
    leaves = "os.makedirs('private/inner'); os.chdir('private/inner'); os.chmod('..', 0)\n"
    done = cold.run("--verbose", script, before=leaves + WITHOUT_RIGHTS)
    assert done.stdout == "ran\n"
    assert "the run's process cannot be prepared: Permission denied" in done.stderr


@pytest.mark.slow
def test_a_command_without_standard_input_runs_in_a_process_of_its_own(cold: Any) -> None:
    cold.warm()
    script = cold.script("import sys; print(sys.stdin)")
    done = cold.run("--verbose", script, stdin=None, before="os.close(0)", input=None)
    assert done.stdout == "None\n"
    assert "standard input, output or error is closed" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("options", [["-v"], ["-X", "importtime"]], ids=str)
def test_imports_that_are_reported_are_those_of_the_run(cold: Any, options: list[str]) -> None:
    cold.warm()
    command = [sys.executable, *options, "-m", "jitserver", "run", "--verbose", cold.script("import decimal")]
    done = subprocess.run(
        command, env=cold.variables, cwd=cold.folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert "an option of Python reports each import" in done.stderr
    assert done.stderr.count("decimal") > 0


@pytest.mark.slow
def test_a_prompt_comes_after_the_program(cold: Any) -> None:
    cold.warm()
    command = [sys.executable, "-i", "-m", "jitserver", "run", "--verbose", cold.script("x = 42")]
    options: Any = {"env": cold.variables, "cwd": cold.folder, "capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(command, input="print(x + 1)\n", check=True, **options)
    assert done.stdout == "43\n"
    assert "python -i was given" in done.stderr


@pytest.mark.slow
def test_a_new_version_may_be_fit(cold: Any, site: Path, until: Any) -> None:
    install(site, "misbehaved", "print('hello')")
    learn(cold, until, "misbehaved")
    assert unfit(cold) == {"misbehaved": "misbehaved changes the printed output"}
    install(site, "misbehaved", "VERSION = 2")
    (site / "misbehaved-2.dist-info").mkdir()
    probe = cold.script(LOADED.format(names=["misbehaved"]), "probe.py")
    until(lambda: cold.run("--verbose", probe).stdout == "['misbehaved']\n", "the helper to import it")


@pytest.mark.slow
def test_what_depends_on_the_order_of_a_set_is_traced_once(cold: Any, new_daemon: Any, counts: Any) -> None:
    source = """
        import jax, os
        NAMES = {"one", "two", "three", "four", "five"}
        @jax.jit
        def f(x):
            for name in NAMES:
                x = x * len(name) + 1
            return x
        print(float(f(1.0)), list(NAMES), os.environ.get("PYTHONHASHSEED"), file=open("out", "w"))
    """
    script, out = cold.script(source), cold.folder / "out"

    def traces() -> int:
        cold.warm()
        assert "fresh process" not in cold.run("--verbose", script).stderr
        return int(counts(cold.variables["JITSERVER_ADDRESS"])["client_traces"])

    with new_daemon(cold.variables["JITSERVER_ADDRESS"]):
        before = int(counts(cold.variables["JITSERVER_ADDRESS"])["client_traces"])
        first, said = traces(), out.read_text()
        assert first == before + 1
        assert said.endswith(" None\n")
        assert (traces(), out.read_text()) == (first, said)
        cold.close()  # the next helper has the same seed
        assert (traces(), out.read_text()) == (first, said)
