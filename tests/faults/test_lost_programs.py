"""Programs that a client holds, whose executables had left the daemon's memory, and that the disk has no longer."""

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.session.handshake import ask
from jitclient.wire.introspection import EntryInfo, Listed, Match
from jitclient.wire.messages import Verb

pytestmark = pytest.mark.slow

PROGRAM = """
    @jitclient.jit
    def f(x):
        return x * 2

    def fill(number):
        @jitclient.jit
        def filler(x):
            return x + number
        return filler

    fillers = [fill(number) for number in range(4)]

    x = np.ones(3, np.float32)
    resident = jitclient.device_put(x)
    assert float(f(x)[0]) == float(f(resident)[0]) == 2
    time.sleep(10.5)
    for filler in fillers:
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
        for part in (each for each in folder.iterdir() if each.name != "daemons"):
            shutil.rmtree(part / "blobs")
            for path in part.glob("catalog*"):
                path.unlink()
        client.goes_on()
        client.says(*says, "2.0 2.0")
        client.goes_on()
        client.ends()


def test_a_program_that_no_disk_keeps_is_made_again_without_its_client(
    serve: Callable[..., Any], start_client: Callable[..., Any]
) -> None:
    with serve("--program-memory", "1", "--disk", "0") as daemon:
        client = start_client(daemon, textwrap.dedent(PROGRAM).replace("FIRST", "print(float(f(resident)[0]))"))
        client.says("ready")
        assert {info.name for info in listed(daemon) if info.in_memory} == {"filler"}
        client.goes_on()
        client.says("2.0", "2.0 2.0")
        client.goes_on()
        client.ends()


DROPS = """
    import gc
    gc.disable()
    x = jitclient.device_put(np.ones(3, np.float32))
    for number in range(40):
        f = jitclient.jit(lambda x, c=float(number): x * c)
        if number % 2:
            f(x)  # it may still be queued when the next function is looked up
            continue
        assert float(f(x)[0]) == number
    kept = jitclient.jit(lambda x: x + 1), jitclient.jit(lambda x: x + 1)
    assert [float(each(x)[0]) for each in kept] == [2, 2]
    kept = kept[:1]
    jitclient.jit(lambda x: x + 2)(x)
    assert float(kept[0](x)[0]) == 2
    print("ready")
    sys.stdin.readline()
"""


def test_programs_of_dropped_functions_are_let_go(
    serve: Callable[..., Any], start_client: Callable[..., Any], until: Callable[..., Any]
) -> None:
    with serve("--program-memory", "1", "--disk", "0") as daemon:
        client = start_client(daemon, textwrap.dedent(DROPS))
        client.says("ready")
        until(lambda: daemon.counts().entries <= 3, "the programs to leave the memory")
        client.goes_on()
        client.ends()


def listed(daemon: Any) -> list[EntryInfo]:
    found: Listed = ask(Settings(address=daemon.address), Verb.ENTRIES, Match(""), Listed)
    return found.found
