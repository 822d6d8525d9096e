"""Machines of a lab share programs: what one has made, the next one neither traces nor compiles."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jitclient.core.directories import compilations_directory
from jitserver.store.share import contents, entries, signing
from jitserver.store.share.objects import Objects

KEY = "a secret of the project"

PROGRAM = """
    import json, time
    import jax.numpy as jnp
    import jitclient

    scale = 3.0

    @jitclient.jit
    def step(x):
        time.sleep(1)  # so that it is worth sharing
        return {"y": jnp.sort(x * scale), "n": x.sum()}

    found = step(jnp.arange(5.0)[::-1])
    print(json.dumps([found["y"].tolist(), float(found["n"])]))
"""
VALUE = [[0.0, 3.0, 6.0, 9.0, 12.0], 10.0]


@pytest.fixture
def lab(own: Any, tmp_path: Path) -> Any:
    own.env = {"JITSERVER_SHARE": f"file://{tmp_path}/lab", "JITSERVER_SHARE_KEY": KEY}
    return own


def test_a_fresh_home_finds_what_another_machine_has_made(lab: Any, tmp_path: Path) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
        assert lab.counts()["traces"] == 1
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(PROGRAM) == VALUE
        counts = lab.counts()
        assert (counts["traces"], counts["compiles"]) == (0, 0)
        assert (counts["share"].found, counts["share"].uploaded) == (1, 0)
    # From now on, its own disk has it.
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other", JITSERVER_SHARE=""):
        assert lab.run(PROGRAM) == VALUE
        assert lab.counts()["traces"] == 0


def test_the_trace_of_a_client_counts_for_what_a_program_takes_to_make(lab: Any, tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "scaling.py").write_text("GAIN = 2.0\n\ndef scaled(x):\n    return x * GAIN\n")
    lab.env["PYTHONPATH"] = str(packages)
    program = """
        import json, time
        import numpy as np
        import jitclient, scaling

        scaling.GAIN = 3.0  # the daemon traces with 2.0, so it gets the client's trace

        @jitclient.jit
        def step(x):
            time.sleep(1)
            return scaling.scaled(x)

        print(json.dumps(step(np.arange(3.0, dtype="float32")).tolist()))
    """
    for folder, found in ("one", 0), ("other", 1):
        with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/{folder}"):
            assert lab.run(program, PYTHONPATH=str(packages)) == [0.0, 3.0, 6.0]
            share = lab.counts()["share"]
            assert (share.found, share.seconds_saved >= 1) == (found, bool(found))


def test_an_explanation_asks_the_lab(lab: Any, tmp_path: Path) -> None:
    made, _ = PROGRAM.split("    found = step(")
    explained = f"""{made}
    x = jnp.arange(5.0)[::-1]
    before = jitclient.explain(step, x).level
    step(x)
    print(json.dumps([before, jitclient.explain(step, x).level, jitclient.explain(step, 1).level]))
    """
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(explained) == ["L2", "L0", None]
        counts = lab.counts()
        assert (counts["traces"], counts["share"].found) == (0, 1)
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(explained) == ["L1", "L0", None]


SET_UP = """
    import json
    import jax, jax.numpy as jnp
    import jitclient
    from jitclient.jaxside import compilation_cache

    @jitclient.jit
    def double(x):
        return 2 * x

    @jitclient.jit
    def total(x):
        return x.sum()

    x = jnp.linspace(0, 1, 5) + jax.random.normal(jax.random.key(0), 5)
    values = [float(total(double(x))), float(total(x))]
    print(json.dumps([values, compilation_cache.own().compiled]))
"""
"""A script whose programs take under a second each, and whose own process compiles, too."""


@pytest.mark.parametrize("is_running", [False, True], ids=["before the daemon starts", "while the daemon runs"])
def test_a_fresh_home_has_all_that_a_script_used(
    is_running: bool, lab: Any, cli: Any, tmp_path: Path, until: Any
) -> None:
    def share(home: str, *words: str) -> Any:
        return cli("share", *words, env={**lab.env, "JITSERVER_CACHE_DIR": f"{tmp_path}/{home}"})

    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        (environment,) = [path for path in (tmp_path / "one").iterdir() if path.is_dir()]
        unused = compilations_directory(environment) / f"{1:064x}"
        unused.parent.mkdir(exist_ok=True)
        unused.touch()
        os.utime(unused, (1, 1))
        values, compiled = lab.run(SET_UP, JITSERVER_CACHE_DIR=f"{tmp_path}/one")
        assert compiled > 3
        assert lab.counts()["traces"] == 2
        until(lambda: share("one", "push", "program.py").returncode == 0, "the daemon to note what the script used")
    pull = ("pull", "somewhere/program.py", "--json")
    if not is_running:
        assert json.loads(share("other", *pull).stdout)["programs"] == 2
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        if is_running:
            assert json.loads(share("other", *pull).stdout)["programs"] == 2
        assert lab.run(SET_UP, JITSERVER_CACHE_DIR=f"{tmp_path}/other") == [values, 0]
        counts = lab.counts()
        assert (counts["traces"], counts["compiles"]) == (0, 0)
        assert json.loads(share("other", *pull).stdout)["programs"] == 0
    assert not [*(tmp_path / "other").rglob(unused.name)]


def test_a_program_that_this_machine_cannot_load_is_made_here(lab: Any, tmp_path: Path) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
    objects = Objects(lab.env["JITSERVER_SHARE"])
    (entry,) = contents.programs(objects)
    (one,) = contents.checked(objects, KEY.encode(), [entry])
    assert one.program is not None
    bad = entries.encoded(one.program, b"made for another machine", "someone")
    objects.put(entry.name, signing.signed(KEY.encode(), entry.name, bad))
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(PROGRAM) == VALUE
        counts = lab.counts()
        assert counts["traces"] == 1
        assert counts["share"].rejected == {"cannot be loaded here": 1}
    (mended,) = contents.checked(objects, KEY.encode(), contents.programs(objects))
    assert mended.by != "someone"
    assert msgspec.structs.asdict(mended.program.info)["seconds"]  # type: ignore[union-attr]


def test_what_is_wrong_with_the_settings_turns_off_the_lab_only(own: Any, tmp_path: Path) -> None:
    own.env = {"JITSERVER_SHARE": f"file://{tmp_path}/lab", "JITSERVER_SHARE_KEY": "short"}
    with own.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert own.run(PROGRAM) == VALUE
        assert own.counts()["share"] is None
