"""`jitserver cache copy` to and from a file: a running daemon finds what another one made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = """
    import json, numpy as np, jitclient

    @jitclient.jit
    def shared(x):
        return x * 2

    print(json.dumps(np.asarray(shared(np.arange(3, dtype=np.float32))).tolist()))
"""


def test_a_running_daemon_finds_what_another_one_made(
    cli: Callable[..., Any],
    new_daemon: Callable[..., Any],
    run_script: Callable[..., Any],
    counts: Callable[..., dict[str, Any]],
    short_path: Path,
) -> None:
    here, there = (
        {"JITSERVER_ADDRESS": f"unix:{short_path}/{name}.sock", "JITSERVER_CACHE_DIR": str(short_path / name)}
        for name in ("here", "there")
    )
    file = short_path / "cache.tar"
    with new_daemon(here["JITSERVER_ADDRESS"], env=here):
        assert run_script(PROGRAM, env=here) == [0.0, 2.0, 4.0]
    copied = json.loads(cli("cache", "copy", "disk", str(file), "--json", env=here).stdout)
    # The client's own jax has compiled nothing, as the daemon runs the program.
    told = {"result": "copied", "from": "disk", "to": str(file), "programs": 1, "compilations": 0, "left_out": {}}
    assert copied == told
    with new_daemon(there["JITSERVER_ADDRESS"], env=there):
        assert "no program of " in cli("cache", "copy", str(file), "disk", "other", env=there).stderr
        assert cli("cache", "copy", str(file), "disk", "shared", env=there).stdout.startswith("copied 1 program and ")
        assert cli("cache", "copy", str(file), "disk", env=there).stdout.endswith("; left out: 1 already there\n")
        assert run_script(PROGRAM, env=there) == [0.0, 2.0, 4.0]
        assert [counts(there["JITSERVER_ADDRESS"])[name] for name in ("compiles", "traces", "client_traces")] == [
            0,
            0,
            0,
        ]
    file.write_bytes(b"no archive")
    refused = cli("cache", "copy", str(file), "disk", "--json", env=there)
    assert (refused.returncode, json.loads(refused.stdout)["type"]) == (1, "ArchiveRefused")
    for words in (("disk", "disk"), ("lab", "disk"), ("disk", "s3://lab")):
        assert cli("cache", "copy", *words, env=there).returncode == 2
