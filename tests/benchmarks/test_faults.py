"""The faults: the shim fails the calls that it should, each failure is counted, and a short form of the whole holds."""

import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import attack, random_messages
from benchmarks.faults.result import Result
from benchmarks.faults.shim import CALLS, Control, build
from benchmarks.faults.soak import LIMITS, Sample, judged, slopes, soaked
from jitclient.session import process

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


def samples(**rising: float) -> list[Sample]:
    """Thirty samples of which some quantities rise by so much per thousand operations, and all vary."""
    names, chance = [field.name for field in dataclasses.fields(Sample)][1:], random.Random(1)
    return [
        Sample(1000 * n, *(100 + rising.get(name, 0.0) * n + chance.gauss(0, 0.5 * LIMITS[name]) for name in names))
        for n in range(30)
    ]


def test_a_soak_in_which_nothing_rises_holds() -> None:
    assert judged(slopes(samples())) == []
    assert slopes(samples()[:2]) == {}


@pytest.mark.parametrize("name", LIMITS)
def test_each_quantity_that_rises_fails_the_soak(name: str) -> None:
    [text] = judged(slopes(samples(**{name: 2 * LIMITS[name]})))
    assert text.startswith(f"{name} rises by ")


@pytest.mark.slow
def test_a_soak_with_a_leak_on_a_full_disk_shows_the_leak_and_no_other_fault(short_path: Path) -> None:
    shown = list[str]()
    result = soaked(short_path, "with a full disk", lambda _: len(shown) < 6, shown.append, share=0.05, leak=True)
    assert result.figures["memory_mib"] > 60, result
    assert (result.hangs, result.raw) == (0, 0)
    assert all(" rises by " in text for text in result.details), result.details


@pytest.mark.slow
def test_the_dearest_messages_take_little_memory(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "MAX_CALL_SECONDS", float("inf"))  # the benchmark judges times
    dear = ["many arguments", "many drops before calls", "many manifests", "many axes", "a request of many items"]
    dear += ["many small arrays"]
    monkeypatch.setattr(attack, "ATTACKS", {name: attack.ATTACKS[name] for name in dear})
    monkeypatch.setattr(random_messages, "_KINDS", {})
    monkeypatch.setattr(process, "current", None)  # it connects this process to its daemon
    results = list(attack.attack(short_path))
    assert len(results) == len(dear) + 1
    assert not [(result.name, result.details) for result in results if not result.holds]
