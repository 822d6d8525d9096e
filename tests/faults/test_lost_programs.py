"""Programs that a client holds, whose executables had left the daemon's memory, and that the disk has no longer."""

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.messages import EntryInfo, Listed, Match, Verb

pytestmark = pytest.mark.slow

PROGRAM = """
    @jitclient.jit
    def f(x):
        return x * 2

    @jitclient.jit
    def filler(x):
        return x + 1

    x = np.ones(3, np.float32)
    resident = jitclient.device_put(x)
    assert float(f(x)[0]) == float(f(resident)[0]) == 2
    time.sleep(10.5)
    filler(x)  # as f is idle, it leaves the memory
    print("ready")
    sys.stdin.readline()
    FIRST
    print(float(f(x)[0]), float(f(resident)[0]))
    sys.stdin.readline()
"""
AT_ONCE = "f(x)"
QUEUED = """
    try:
        np.asarray(f(resident))
    except errors.ProgramLost as error:
        assert "Call it again" in str(error)
        print("lost")
"""


@pytest.mark.parametrize(("first", "says"), [(AT_ONCE, ()), (QUEUED, ("lost",))], ids=["at once", "queued"])
def test_a_program_that_is_nowhere_any_more_is_made_again(
    first: str, says: tuple[str, ...], short_path: Path, serve: Callable[..., Any], start_client: Callable[..., Any]
) -> None:
    folder = short_path / "cache"
    folder.mkdir(mode=0o700)
    with serve("--program-memory", "1", JITSERVER_CACHE_DIR=str(folder)) as daemon:
        client = start_client(daemon, textwrap.dedent(PROGRAM).replace("FIRST", textwrap.dedent(first)))
        client.says("ready")
        assert {info.name for info in listed(daemon) if info.in_memory} == {"filler"}
        for part in folder.iterdir():
            shutil.rmtree(part / "blobs")
            for path in part.glob("catalog*"):
                path.unlink()
        client.goes_on()
        client.says(*says, "2.0 2.0")
        client.goes_on()
        client.ends()


def listed(daemon: Any) -> list[EntryInfo]:
    found: Listed = ask(Settings(address=daemon.address), Verb.ENTRIES, Match(""), Listed)
    return found.found
