"""The faults: the shim fails the calls that it should, each failure is counted, and a short form of the whole holds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.result import Result
from benchmarks.faults.shim import CALLS, Control, build

TOP = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the shim needs a C compiler")

OPENS = """
import os
for n in range(4):
    try:
        os.close(os.open("/dev/null", os.O_RDONLY))
        print("opened")
    except OSError as error:
        print(error.strerror)
    if not n:
        Control(Path(os.environ["FAULTS_CONTROL"])).arm("open", 2)
"""


def test_the_shim_fails_the_call_that_it_is_told_to(tmp_path: Path) -> None:
    control = Control(tmp_path / "control")
    env = {**os.environ, **control.environment(build(tmp_path)), "PYTHONPATH": str(TOP)}
    source = f"from pathlib import Path\nfrom benchmarks.faults.shim import Control\n{OPENS}"
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["opened", "opened", "Too many open files", "opened", ""]
    assert control.disarm()
    assert CALLS["open"] == 24


@pytest.mark.parametrize("end", ["hang", "wrong", "raw: OSError: x", "right", "local", "typed: DaemonUnavailable: x"])
def test_what_goes_wrong_is_counted(end: str) -> None:
    result = Result("x")
    result.add("open 1", {"steps": {"connect": "right", "call": end}, "good": 0.5})
    result.add("open 2", {"steps": {"connect": "right"}, "good": 1.5})
    assert (result.injections, result.quantile(0.5)) == (2, 1.0)
    assert result.holds == (end[:3] not in ("han", "wro", "raw"))
    assert len(result.details) == (not result.holds)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "part", [["sweep", "--call", "connect", "--call", "recvmsg", "--call", "read"], ["signals"], ["flips"]]
)
def test_a_short_form_of_it_holds(part: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "faults", *part, "--quick", "--json"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: list[dict[str, Any]] = json.loads(done.stdout)
    assert sum(result["injections"] for result in results) > 2
    assert all(not (result["hangs"] or result["wrong"] or result["raw"]) for result in results)
