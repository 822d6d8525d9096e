"""Runs in a booted systemd, as root: the checks of one script, each of which prints a line of JSON."""

import importlib.util
import inspect
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jitclient
import jitserver

PROGRAM = """
import json
import numpy as np
import jitclient

@jitclient.jit
def affine(x):
    return x * 2 + 1

print(json.dumps(np.asarray(affine(np.arange(3, dtype=np.float32))).tolist()))
"""
ANSWER = [1.0, 3.0, 5.0]


class User:
    """Somebody on the machine, and what they run."""

    def __init__(self, name: str, manager: bool) -> None:
        subprocess.run(["useradd", "-m", name], check=True)
        found = pwd.getpwnam(name)
        self.name, self.uid, self.gid, self.home = name, found.pw_uid, found.pw_gid, Path(found.pw_dir)
        self.runtime = Path(f"/run/user/{self.uid}")
        if manager:
            subprocess.run(["systemctl", "start", "dbus", "systemd-logind", f"user@{self.uid}"], check=True)
        else:
            self.runtime.mkdir(mode=0o700, parents=True)
            os.chown(self.runtime, self.uid, self.gid)
        (self.home / "program.py").write_text(PROGRAM)

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """A command of theirs, in an environment that has nothing of ours."""
        return subprocess.run(
            command,
            user=self.uid,
            group=self.gid,
            extra_groups=[self.gid],
            cwd=self.home,
            env={**environment(self.home), "USER": self.name, "XDG_RUNTIME_DIR": str(self.runtime), **env},
            capture_output=True,
            text=True,
            timeout=100,
        )

    def jitserver(self, *arguments: str, python: str = sys.executable, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours."""
        return self.run(python, "-P", "-m", "jitserver", *arguments, **env)

    def json(self, *arguments: str, python: str = sys.executable, **env: str) -> Any:
        """Return the JSON of a command of ours, which must succeed."""
        return parsed(self.jitserver(*arguments, "--json", python=python, **env))

    def call(self, python: str = sys.executable, **env: str) -> None:
        """Calls a function through the daemon, and checks the answer."""
        done = self.run(python, "program.py", **env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ANSWER, done.stdout

    def systemctl(self, *arguments: str) -> str:
        """Their own systemd."""
        return self.run("systemctl", "--user", *arguments).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """A property of a unit of theirs."""
        return self.systemctl("show", "--value", "-p", name, unit)


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "JAX_PLATFORMS": "cpu",
        "JITSERVER_AUTOSTART": "0",
        "JITSERVER_FALLBACK": "error",
    }


def as_root(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run a command of ours as root."""
    env = environment(Path("/root"))
    return subprocess.run(
        [python, "-P", "-m", "jitserver", *arguments], env=env, cwd="/", capture_output=True, text=True, timeout=100
    )


def systemctl(*arguments: str) -> str:
    """The system's systemd."""
    return subprocess.run(["systemctl", *arguments], capture_output=True, text=True, timeout=100).stdout.strip()


def parsed(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, f"status {done.returncode}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def failed(done: subprocess.CompletedProcess[str], status: int, *said: str) -> None:
    """Assert that a command failed so, and said why on stderr, without a traceback."""
    assert done.returncode == status, f"status {done.returncode}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    for text in said:
        assert text in done.stderr, done.stderr


def until(condition: Callable[[], Any], what: str, seconds: float = 40) -> Any:
    """Polls until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.05)
    return found


def kill(pid: int, number: signal.Signals) -> None:
    """Send a signal to a daemon, and to no other process where there is none."""
    assert pid > 1, "no daemon runs"
    os.kill(pid, number)


def uid_of(pid: int) -> int:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid:"))
    return int(line.split()[1])


def variables_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def is_private_socket(path: Path, uid: int) -> bool:
    found = path.stat()
    return stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600 and found.st_uid == uid


def copy_of_environment(folder: Path) -> str:
    """Another Python environment with the same packages, and its interpreter."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text((Path(sys.prefix) / "pyvenv.cfg").read_text())
    (folder / "lib").symlink_to(Path(sys.prefix) / "lib")
    python = folder / "bin" / "python"
    python.symlink_to(Path(sys.executable).resolve())
    return str(python)


def open_up() -> None:
    """Lets other users pass to the interpreter and the packages (in this throw-away copy of the machine)."""
    ours = [sys.executable, os.path.realpath(sys.executable), sys.prefix, sys.base_prefix]
    for path in map(Path, [*ours, jitserver.__file__, jitclient.__file__]):
        for folder in path.parents:
            folder.chmod(folder.stat().st_mode | 0o055)


def main(script: str) -> None:
    """Runs the checks of a script in their order; one that fails does not end the others."""
    assert os.environ.get("JITSERVER_TEST_INSIDE"), "this changes the machine: it runs only where the tests boot one"
    open_up()
    spec = importlib.util.spec_from_file_location("script", Path(__file__).parent / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, check in inspect.getmembers(module, inspect.isfunction):
        assert not name.startswith("check_") or check.__module__ == "script"
    for name in [name for name in vars(module) if name.startswith("check_")]:
        begun = time.monotonic()
        try:
            getattr(module, name)()
            found = {"ok": True}
        except BaseException:
            found = {"ok": False, "detail": f"{traceback.format_exc()}\n{_journal()}"}
        print(json.dumps({"check": name, **found, "seconds": round(time.monotonic() - begun, 2)}), flush=True)


def _journal() -> str:
    shown = subprocess.run(["journalctl", "--no-pager", "-n", "25", "-o", "cat"], capture_output=True, text=True)
    return shown.stdout


if __name__ == "__main__":
    sys.modules["harness"] = sys.modules["__main__"]
    main(sys.argv[1])
