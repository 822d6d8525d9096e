"""A hostile machine's answers are an error of ours in its client, and run nothing there."""

import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import jitclient
from jitclient.errors import DaemonUnavailable, Incompatible, JitserverError
from jitclient.session import process

HOSTILE = Path(__file__).with_name("hostile.py")


def kinds() -> list[str]:
    spec = importlib.util.spec_from_file_location("hostile", HOSTILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [*module.ANSWERS, "noise without end"]


TYPES = {
    "another protocol": Incompatible,
    "another message": Incompatible,
    "noise without end": DaemonUnavailable,
    "nothing": DaemonUnavailable,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", kinds())
def test_what_it_says_is_an_error(kind: str, new_host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = process.current
    with new_host() as far:
        far.script("environment/bin/jitserver", f"exec {sys.executable} {HOSTILE} {shlex.quote(kind)}")
        monkeypatch.setenv("PATH", far.env["PATH"])
        with pytest.raises(JitserverError) as caught:
            jitclient.connect(far.address)
    assert isinstance(caught.value, TYPES.get(kind, JitserverError))
    assert not Path("/tmp/hostile").exists()
    assert process.current is before
