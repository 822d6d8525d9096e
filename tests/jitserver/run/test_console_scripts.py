"""Console scripts and runners of other code start as their own processes would, and the report says what is warm."""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """\
#!{python}
import sys
from mosaic.cli import main
sys.exit(main())
"""
MAIN = """
import os, sys
import jax

@jax.jit
def step(x):
    return x + 1

def main():
    main = sys.modules["__main__"]
    print(sys.argv, sys.path[0], main.__file__, main.__spec__, os.path.basename(sys.orig_argv[0]))
    print(type(step).__name__, file=sys.stderr)
    return 3
"""
TESTED = """
import jax

@jax.jit
def step(x):
    return x + 1

def test_step():
    assert type(step).__name__ == "RemoteFunction"
"""


@pytest.fixture
def mosaic(warm: Any) -> dict[str, str]:
    """The variables of a shell that finds a script called `mosaic`, which is the user's own."""
    scripts, path = warm.folder / "scripts", warm.folder / "scripts" / "mosaic"
    scripts.mkdir()
    warm.script(MAIN, "own/mosaic/cli.py")
    path.write_text(SCRIPT.replace("{python}", sys.executable))
    path.chmod(0o755)
    return {"PATH": f"{scripts}:/usr/bin:/bin", "PYTHONPATH": str(warm.folder / "own")}


def test_a_console_script_finds_what_its_own_process_finds(warm: Any, mosaic: dict[str, str]) -> None:
    env = {**warm.variables, **mosaic}
    own = subprocess.run(["mosaic", "--fast"], env=env, cwd=warm.folder, capture_output=True, text=True, check=False)
    assert (own.returncode, own.stderr) == (3, "PjitFunction\n")
    warm.warm(mosaic)
    done = warm.run("--verbose", "mosaic", "--fast", env=mosaic)
    assert (done.returncode, done.stdout, done.stderr) == (3, own.stdout, "RemoteFunction\n")
    command = [sys.executable, "-m", "jitclient", "mosaic", "--fast"]
    done = subprocess.run(command, env=env, cwd=warm.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, own.stdout, "RemoteFunction\n")


def test_a_runner_of_other_code_says_that_it_has_no_imports(warm: Any) -> None:
    test = warm.script(TESTED, "tests/test_step.py")
    done = warm.run("--report=json", "-m", "pytest", "-p", "no:cacheprovider", test)
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stderr.splitlines()[-1])
    assert report["imports"] == {"modules": 0, "seconds": 0.0, "why": "pytest runs code from elsewhere"}
    warm_run = warm.run("--report=json", warm.script("pass"))
    report = json.loads(warm_run.stderr.splitlines()[-1])
    assert report["imports"]["modules"] > 100
    assert report["imports"]["why"] == ""
