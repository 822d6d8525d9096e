"""Machines of a lab share programs: what one has made, the next one neither traces nor compiles."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

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


BY_CLIENT = """
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


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """A folder of an installed package, which `BY_CLIENT` uses."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "scaling.py").write_text("GAIN = 2.0\n\ndef scaled(x):\n    return x * GAIN\n")
    return str(folder)


def test_the_trace_of_a_client_counts_for_what_a_program_takes_to_make(lab: Any, tmp_path: Path, packages: str) -> None:
    lab.env["PYTHONPATH"] = packages
    for folder, found in ("one", 0), ("other", 1):
        with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/{folder}"):
            assert lab.run(BY_CLIENT, PYTHONPATH=packages) == [0.0, 3.0, 6.0]
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


@pytest.fixture
def another_processor(tmp_path: Path) -> str:
    """A folder that makes the Python processes that have it in their path see other features of the processor."""
    folder = tmp_path / "another processor"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "from jitclient.core import cpu\n\ncpu.cpu_features = lambda: 'features of another processor'\n"
    )
    return str(folder)


@pytest.fixture
def uploaded(lab: Any, until: Any) -> Any:
    """A function that waits for the upload of a program and its trace."""
    return lambda: until(lambda: lab.counts()["share"].uploaded == 2, "the uploads")


TRACED = [
    pytest.param(PROGRAM, VALUE, id="by the daemon"),
    pytest.param(BY_CLIENT, [0.0, 3.0, 6.0], id="by the client"),
]


@pytest.mark.parametrize(("program", "value"), TRACED)
def test_another_kind_of_machine_finds_the_trace(
    program: str, value: Any, lab: Any, tmp_path: Path, another_processor: str, packages: str, uploaded: Any
) -> None:
    lab.env["PYTHONPATH"] = packages
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(program, PYTHONPATH=packages) == value
        uploaded()
    # None of these uploads what it compiles, so all find the trace.
    lab.env |= {"PYTHONPATH": f"{packages}:{another_processor}", "JITSERVER_SHARE_MODE": "read"}
    for folder in "other", "third":
        with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/{folder}"):
            assert lab.run(program, PYTHONPATH=packages) == value
            counts = lab.counts()
            assert (counts["traces"], counts["compiles"], counts["share"].found) == (0, 1, 1)
            assert counts["client_traces"] == 0
            assert lab.run(program, PYTHONPATH=packages) == value
            assert lab.counts()["compiles"] == 1
    # From now on, its own disk has it.
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other", JITSERVER_SHARE=""):
        assert lab.run(program, PYTHONPATH=packages) == value
        counts = lab.counts()
        assert (counts["traces"], counts["compiles"]) == (0, 0)
    # A disk that has lost the executable does not hide the trace.
    for path in (tmp_path / "other").glob("*/blobs"):
        shutil.rmtree(path)
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(program, PYTHONPATH=packages) == value
        counts = lab.counts()
        assert (counts["traces"], counts["client_traces"], counts["compiles"]) == (0, 0, 1)


def test_an_explanation_says_that_the_lab_has_the_trace_only(
    lab: Any, tmp_path: Path, another_processor: str, uploaded: Any
) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
        uploaded()
    made, _ = PROGRAM.split("    found = step(")
    explained = f"""{made}
    found = jitclient.explain(step, jnp.arange(5.0)[::-1])
    print(json.dumps([found.hit, found.level, str(found), found.cost_seconds >= 1]))
    """
    lab.env["PYTHONPATH"] = another_processor
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        hit, level, text, is_long = lab.run(explained)
        assert (hit, level, is_long) == (False, None, True)
        assert "compiled here: the lab's cache has the trace" in text
        assert lab.counts()["traces"] == 0


def test_another_kind_of_machine_does_not_find_the_trace_of_other_code(
    lab: Any, tmp_path: Path, another_processor: str, uploaded: Any
) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
        uploaded()
    lab.env["PYTHONPATH"] = another_processor
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(PROGRAM.replace("scale = 3.0", "scale = 4.0")) == [[0.0, 4.0, 8.0, 12.0, 16.0], 10.0]
        assert lab.counts()["traces"] == 1
        assert lab.run(PROGRAM) == VALUE
        assert lab.counts()["traces"] == 1


def spoil(objects: Objects, *kinds: str) -> None:
    """Put code that cannot be used into the entry of each kind, signed by a member."""
    for kind in kinds:
        (entry,) = contents.everything(objects)[kind]
        (one,) = contents.checked(objects, KEY.encode(), [entry])
        assert one.program is not None
        bad = entries.encoded(one.program, b"made for another machine", "someone", 1.0)
        objects.put(entry.name, signing.signed(KEY.encode(), entry.name, bad))


def test_a_trace_that_cannot_be_compiled_here_is_made_again(
    lab: Any, tmp_path: Path, another_processor: str, uploaded: Any
) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
        uploaded()
    spoil(Objects(lab.env["JITSERVER_SHARE"]), "traces")
    lab.env["PYTHONPATH"] = another_processor
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(PROGRAM) == VALUE
        counts = lab.counts()
        assert counts["traces"] == 1
        assert counts["share"].rejected == {"cannot be compiled here": 1}


def test_a_program_that_this_machine_cannot_load_is_made_here(lab: Any, tmp_path: Path, uploaded: Any) -> None:
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert lab.run(PROGRAM) == VALUE
        uploaded()
    objects = Objects(lab.env["JITSERVER_SHARE"])
    spoil(objects, "programs", "traces")
    with lab.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/other"):
        assert lab.run(PROGRAM) == VALUE
        counts = lab.counts()
        assert counts["traces"] == 1
        assert counts["share"].rejected == {"cannot be loaded here": 1, "cannot be compiled here": 1}
    (mended,) = contents.checked(objects, KEY.encode(), contents.everything(objects)["programs"])
    assert mended.by != "someone"
    assert msgspec.structs.asdict(mended.program.info)["seconds"]  # type: ignore[union-attr]


def test_what_is_wrong_with_the_settings_turns_off_the_lab_only(own: Any, tmp_path: Path) -> None:
    own.env = {"JITSERVER_SHARE": f"file://{tmp_path}/lab", "JITSERVER_SHARE_KEY": "short"}
    with own.serving(JITSERVER_CACHE_DIR=f"{tmp_path}/one"):
        assert own.run(PROGRAM) == VALUE
        assert own.counts()["share"] is None
