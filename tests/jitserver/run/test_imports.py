"""Findings of one helper about imports: the next does not look again, nor does a run, unless something changed."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import pytest

UPDATE = """
    import json, sys
    from jitserver.run import effects, history, imports

    looks = []
    own = effects.ProcessState
    effects.ProcessState = lambda: looks.append(None) or own()
    history.modules = lambda priority=(): json.loads(sys.argv[1])
    helper = imports.Imports("key", lambda: None, False)
    print(json.dumps([helper.update(), len(looks) > 0, sorted(history.unfit(helper._case))]), flush=True)
"""


@pytest.mark.slow
def test_effects_are_looked_for_once_for_the_same_imports_of_the_same_files(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    asking = (
        f"import gc, os\nif os.environ.get('MODE') or open({os.fspath(tmp_path / 'c')!r}).read():\n    gc.disable()\n"
    )
    (tmp_path / "c").touch()
    (site / "asks.py").write_text(asking)
    for name, source in {"plain": "x = 1\n", "later": "x = 2\n", "rude": "import gc\ngc.disable()\n"}.items():
        (site / f"{name}.py").write_text(source)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))}
    env |= {"JITSERVER_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def update(*names: str) -> list[object]:
        """Whether a new helper can go on, whether it has looked for effects, and what is unfit."""
        command = [sys.executable, "-c", textwrap.dedent(UPDATE), json.dumps(names)]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: list[object] = json.loads(done.stdout)
        return found

    assert update("plain") == [True, True, []]
    assert update("plain") == [True, False, []]
    assert update("plain", "later") == [True, True, []]
    assert update("plain", "later") == [True, False, []]
    # A helper that finds an effect leaves what it has found of the imports before.
    assert update("plain", "later", "rude") == [False, True, ["rude"]]
    assert update("plain", "later", "rude") == [True, False, ["rude"]]
    # In another order, a module may do something else.
    assert update("later", "plain") == [False, False, ["rude"]]
    assert update("later", "plain") == [True, True, ["rude"]]
    # A variable or a file that an import reads has changed.
    assert update("asks") == [False, False, ["rude"]]
    assert update("asks") == [True, True, ["rude"]]
    assert update("asks") == [True, False, ["rude"]]
    env["MODE"] = "1"
    assert update("asks") == [False, False, ["rude"]]
    del env["MODE"]
    assert update("asks") == [True, True, ["rude"]]
    (tmp_path / "c").write_text("x")
    assert update("asks") == [False, False, ["rude"]]
    (tmp_path / "c").write_text("")
    assert update("later", "plain") == [True, True, ["rude"]]
    # The file has changed.
    (site / "plain.py").write_text("import gc\ngc.disable()\n")
    assert update("later", "plain") == [False, False, ["rude"]]
    assert update("later", "plain") == [False, True, ["plain", "rude"]]
    assert update("later", "plain") == [True, False, ["plain", "rude"]]


FORKED = """
    import json, os
    import jax.numpy as jnp
    from jitclient.capture.ambient import patches
    from jitclient.capture.dump import capture
    from jitclient.errors import CaptureError
    from jitserver.run.imports import fill_caches

    fill_caches()
    reads, writes = os.pipe()
    if os.fork():
        os.close(writes)
        print(os.read(reads, 1 << 16).decode())
        raise SystemExit

    looked, own = [], patches._changed
    def changed_in(contents, space, names):
        looked.append(space.place(""))
        return own(contents, space, names)
    patches._changed = changed_in

    def changed(x):
        return x * 3
    {change}
    def used(x):
        return jnp.sin(x)
    try:
        capture(used)
        refused = ""
    except CaptureError as error:
        refused = str(error)
    os.write(writes, json.dumps([looked, refused]).encode())
    os._exit(0)
"""


@pytest.mark.slow
def test_what_is_as_it_was_is_not_looked_through_again(run_script: Any) -> None:
    assert run_script(FORKED.format(change="pass")) == [[], ""]


CHANGES = {
    "import jax; jax.numpy.linalg.norm = changed": "jax.numpy.linalg.norm",
    "import jax; jax.core.Tracer.clip = changed": f"{jax.core.Tracer.__module__}.Tracer.clip",
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_run_has_changed_is_seen(change: str, run_script: Any) -> None:
    (looked, refused) = run_script(FORKED.format(change=change))
    assert refused == f"the program changed an installed package: {CHANGES[change]}"
    assert len(looked) == 1
