"""Which helper a command finds."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from jitserver.run import process_facts

from ...prepared import prepared

ENVIRONMENT = {"HOME": "/home/alice", "PATH": "/bin", "OMP_NUM_THREADS": "4"}


def key(environment: dict[str, str] = ENVIRONMENT, folders: tuple[str, ...] = ("/lib",)) -> str:
    return process_facts.key(process_facts.facts(environment, folders, terminal=False))


def test_the_same_process_has_one_key() -> None:
    assert key() == key(dict(reversed(ENVIRONMENT.items())))


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "OMP_NUM_THREADS",
        "JAX_ENABLE_X64",
        "XLA_FLAGS",
        "PYTHONHASHSEED",
        "LD_PRELOAD",
        "LC_ALL",
        "OPENBLAS_NUM_THREADS",
    ],
)
def test_variables_that_libraries_read_matter(name: str) -> None:
    assert key({**ENVIRONMENT, name: "other"}) != key()
    assert key({**ENVIRONMENT, name: ""}) != key()


@pytest.mark.parametrize("name", ["PATH", "PWD", "SHLVL", "SEED"])
def test_others_do_not(name: str) -> None:
    assert key({**ENVIRONMENT, name: "other"}) == key()


def test_folders_of_modules_matter() -> None:
    assert key(folders=("/lib", "/more")) != key()


def test_control_groups_matter_but_not_which_hierarchies_are_mounted() -> None:
    alone = process_facts.control_groups("4:memory:/user\n1:cpu,cpuacct:/\n0::/\n")
    others = process_facts.control_groups("130:name=systemd:/\n5:perf_event:/\n3:memory:/user\n1:cpu,cpuacct:/\n")
    assert alone == others == ["memory:/user"]
    assert alone != process_facts.control_groups("4:memory:/user/other\n")
    assert process_facts.control_groups("0::/user.slice/a:b\n") == [":/user.slice/a:b"]
    assert process_facts.control_groups("") == []  # this kernel has none


def of_a_process(*options: str, prepare: str = "pass") -> dict[str, Any]:
    """The facts of a fresh process: two of them compare by fact, so that a failure names the one that differs."""
    imports = "import json; from jitserver.run.process_facts import facts"
    program = f"{imports}; print(json.dumps(facts(directories=[], terminal=False)))"
    unset = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in unset}
    command = prepared(prepare, sys.executable, *options, "-c", program)
    facts: dict[str, Any] = json.loads(subprocess.check_output(command, env=env))
    return facts


LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"
NICER = "os.nice(3)"
PINNED = "os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])"


@pytest.mark.parametrize("options", [["-u"], ["-O"], ["-W", "error::UserWarning"], ["-X", "utf8"], ["-B"]], ids=str)
def test_options_of_the_interpreter_matter(options: list[str]) -> None:
    assert of_a_process(*options) != of_a_process() == of_a_process()


@pytest.mark.parametrize("prepare", [LIMITED, PINNED, NICER], ids=["descriptors", "processors", "priority"])
def test_limits_matter(prepare: str) -> None:
    if prepare is PINNED and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one processor")
    if prepare == NICER and os.nice(0) == 19:
        pytest.skip("the lowest priority")
    assert of_a_process(prepare=prepare) != of_a_process()


def test_ignored_signals_do_not_matter() -> None:
    assert of_a_process(prepare="import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)") == of_a_process()
