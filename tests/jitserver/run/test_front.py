"""The command: its options, and that it starts in a moment."""

import subprocess
import sys
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.errors import SettingsError
from jitserver.run import front
from jitserver.run.front import parsed
from jitserver.run.request import Command

HEAVY = ("click", "rpyc", "jax", "numpy", "msgspec", "rich", "platformdirs", "asyncio", "subprocess", "inspect")
PARSED = {
    ("a.py",): Command("a.py", False, []),
    ("-v", "a.py", "-v", "-m"): Command("a.py", False, ["-v", "-m"], report="lines", verbose=True),
    ("--no-jit", "a.py", "x"): Command("a.py", False, ["x"], jit=False),
    ("--verbose", "--report", "-m", "a.b", "-h"): Command("a.b", True, ["-h"], report="text", verbose=True),
    ("--package", "a", "--report", "--package", "b", "c.py"): Command(
        "c.py", False, [], report="text", packages=("a", "b")
    ),
    ("--report=json", "a.py", "--report"): Command("a.py", False, ["--report"], report="json"),
    ("--report", "--report=json", "a.py"): Command("a.py", False, [], report="json"),
    ("--report=a/run.html", "--report=run.json", "a.py"): Command("a.py", False, [], report="run.json"),
    ("--package",): None,
    ("--package", "a"): None,
    (): None,
    ("-m",): None,
    ("--help",): None,
    ("--nonsense", "a.py"): None,
}


@pytest.mark.parametrize("words", PARSED, ids=" ".join)
def test_words(words: tuple[str, ...]) -> None:
    assert parsed(words) == PARSED[words]


def test_the_variable_counts_without_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(report="run.html")
    monkeypatch.setattr(front, "settings", lambda: settings)
    assert parsed(["a.py"]) == Command("a.py", False, [], report="run.html")
    assert parsed(["--report=json", "a.py"]) == Command("a.py", False, [], report="json")


def test_it_imports_nothing_heavy() -> None:
    program = f"import sys, jitserver.__main__, jitserver.run.front; print([n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def jitserver(warm: Any, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jitserver", *words]
    return subprocess.run(
        command, env=warm.variables, cwd=warm.folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_help_and_mistakes_are_those_of_all_commands(warm: Any) -> None:
    assert "--no-jit" in jitserver(warm, "run", "--help").stdout
    assert "\n  run " in jitserver(warm, "--help").stdout
    mistakes = {("--nonsense", "a.py"): "No such option '--nonsense'", ("-",): "No such option '-'"}
    mistakes["--report", "--report=html", "a.py"] = "--report='html': expected 'off', 'lines', 'text', 'json', or"
    for words in ((), ("-m",), ("--package", "a")):
        mistakes[words] = "There is no program to run."
    for words, says in mistakes.items():
        done = jitserver(warm, "run", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: ")
        assert says in done.stderr


def test_options_of_all_commands_may_come_first(warm: Any) -> None:
    script = warm.script("import sys, os; print(sys.argv[1:], os.environ['JITSERVER_ADDRESS'])")
    address = f"unix:{warm.folder}/other.sock"
    done = jitserver(warm, "--address", address, "run", script, "--verbose", "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"['--verbose', 'x'] {address}\n", "")


def test_a_report_after_the_name_of_a_package_is_checked() -> None:
    with pytest.raises(SettingsError, match=r"--report='a.txt'"):
        parsed(["--package", "numpyro", "--report=a.txt", "a.py"])
    assert parsed(["--package", "numpyro", "a.py", "--report=a.txt"]) is not None


@pytest.mark.parametrize(("name", "value"), [("JITSERVER_REPORT", "a.txt"), ("JITSERVER_TIMEOUT", "soon")])
def test_a_variable_without_a_valid_value_is_a_usage_error(cold: Any, name: str, value: str) -> None:
    cold.variables[name] = value
    done = jitserver(cold, "run", cold.script("print(1)"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"Error: {name}='{value}': expected" in done.stderr
