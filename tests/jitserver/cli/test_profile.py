"""`jitserver profile`: what the daemon does, recorded from outside."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jax.profiler import ProfileData

import jitclient


def test_it_writes_a_log_directory(daemon: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    np.asarray(jitclient.jit(lambda x: x + 1)(np.zeros(3, np.float32)))
    done = cli("profile", str(os.getpid()), "--seconds", "0", "-o", str(tmp_path), "--json")
    found = json.loads(done.stdout)
    assert Path(found["directory"]).parent == tmp_path / "plugins" / "profile"
    trace, xspace = found["files"]
    assert trace.endswith("-jitserver.trace.json.gz")
    assert found["lost"] == []
    assert any(plane.name == "Task Environment" for plane in ProfileData.from_file(xspace).planes)


def test_a_program_that_is_not_there(daemon: str, cli: Callable[..., Any], tmp_path: Path) -> None:
    done = cli("profile", "no_such_program.py", "-o", str(tmp_path), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["error"].startswith("no program 'no_such_program.py' uses the daemon")
    assert not list(tmp_path.iterdir())
