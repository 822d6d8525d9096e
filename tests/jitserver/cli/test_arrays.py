"""`jitserver arrays`: lists the holders of arrays, and removes names."""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient

NOT_RUNNING = 3


@pytest.fixture
def kept(daemon: str, cli: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    yield jitclient.keep("cli test", {"w": np.ones((8, 8), np.float32), "b": np.ones(8, np.int8)}, ttl=3600.0)
    cli("arrays", "rm", "cli test")


@pytest.mark.usefixtures("kept")
def test_ls_shows_names_and_sessions(cli: Callable[..., Any]) -> None:
    own = jitclient.device_put(np.zeros(1000, np.float32))
    found = json.loads(cli("arrays", "ls", "--json").stdout)
    [one] = [one for one in found["kept"] if one["name"] == "cli test"]
    assert one["label"] == "{'b': i8[8], 'w': f32[8,8]}"
    assert (one["arrays"], one["nbytes"], one["ttl"]) == (2, 8 + 256, 3600.0)
    mine = [session for session in found["sessions"] if session["pid"] == os.getpid()]
    assert sum(session["nbytes"] for session in mine) >= own.nbytes
    # Without Python and its options, where the process has not set a title of its own, as those of xdist do.
    words = list(filter(None, Path("/proc/self/cmdline").read_text().split("\0")))
    assert mine[0]["program"] in (" ".join(words[n:]) for n in range(len(words)))
    assert found["nbytes"] >= own.nbytes + 264
    assert found["most_nbytes"] > found["nbytes"]
    text = cli("arrays", "ls").stdout
    for word in ("cli test", "{'b': i8[8], 'w': f32[8,8]}", "264 B", f"{os.getpid()} "):
        assert word in text, text
    assert re.search("59:|1:00:00", text), text


def test_rm_removes_the_name_but_not_handles(kept: dict[str, Any], cli: Callable[..., Any]) -> None:
    done = cli("arrays", "rm", "cli test")
    assert (done.returncode, done.stdout) == (0, "removed cli test: 264 B\n")
    assert "cli test" not in cli("arrays", "ls").stdout
    assert np.asarray(kept["w"]).sum() == 64


def test_rm_of_an_unknown_name_fails_and_removes_the_others(kept: dict[str, Any], cli: Callable[..., Any]) -> None:
    done = cli("arrays", "rm", "cli test", "nothing", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == ["cli test"]
    assert "no arrays are kept as 'nothing'" in done.stderr
    assert cli("arrays", "rm").returncode == 2


@pytest.mark.parametrize("command", [("arrays", "ls"), ("arrays", "rm", "x")])
def test_without_a_daemon(command: tuple[str, ...], cli: Callable[..., Any], short_path: Path) -> None:
    done = cli(*command, "--json", env={"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock"})
    assert done.returncode == NOT_RUNNING
    assert json.loads(done.stdout)["running"] is False


HOLDS = """
    import json, subprocess, sys
    import numpy as np
    import jitclient

    @jitclient.jit
    def doubled(x):
        return x * 2

    @jitclient.jit
    def pair(x):
        return x + 1, x - 1

    def told(*options):
        command = [sys.executable, "-m", "jitserver", "arrays", "ls", "--json", *options]
        rows = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        return [[row["made_by"], row["defined_at"].partition(":")[2], row["arrays"], row["nbytes"]] for row in rows]

    put = jitclient.device_put(np.ones(1000, np.float32))
    kept = [doubled(put) for _ in range(3)], doubled(np.ones(10, np.float32)), pair(np.ones(500, np.float32))
    pair(put)[0].block_until_ready()  # freed
    print(json.dumps([told("--by", "program"), told("--by", "line")]))
"""


def test_ls_shows_what_made_the_arrays(own: Any) -> None:
    with own.serving():
        by_program, by_line = own.run(HOLDS)
    assert by_program == [
        ["doubled(f32[1000])", "6", 3, 12000],
        ["put by the program", "", 1, 4000],
        ["pair(f32[500])", "10", 2, 4000],
        ["doubled(f32[10])", "6", 1, 40],
    ]
    assert by_line == [
        ["doubled", "6", 4, 12040],
        ["put by the program", "", 1, 4000],
        ["pair", "10", 2, 4000],
    ]
