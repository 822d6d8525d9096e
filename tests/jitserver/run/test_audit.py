"""An audit looks at each package once, as long as its files and the variables that it reads are the same."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

AUDIT = """
    import json, os, sys
    from jitserver.run import audit, history, verdict

    looks = []
    own = audit.ProcessState
    audit.ProcessState = lambda: os.write(looked, b".") and own()
    history.modules = lambda: json.loads(sys.argv[1])
    reads, looked = os.pipe()
    alive, running = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(running, 3)
        os.close(running)
        audit.child.open_fds = lambda: set()
        audit.main(sys.argv[2])
    os.close(looked)
    os.close(running)
    count = len(os.fdopen(reads, "rb").read())  # to the end of the last of its forks
    found = verdict.read("abc")
    fit = [name for name in found.fit if name in json.loads(sys.argv[1])]
    print(json.dumps([count > 0, fit, {name: why for name, why in found.unfit.items()}]))
"""


@pytest.mark.slow
def test_a_package_is_looked_at_once_for_the_same_files_and_variables(tmp_path: Path) -> None:
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

    def audit(*names: str) -> list[object]:
        """Whether an audit has looked for effects, what is fit, and what is not."""
        command = [sys.executable, "-c", textwrap.dedent(AUDIT), json.dumps(names), str(tmp_path / "run-abc.sock")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        found: list[object] = json.loads(done.stdout)
        return found

    rude = {"rude": "rude changes garbage collection"}
    assert audit("plain") == [True, ["plain"], {}]
    assert audit("plain") == [False, ["plain"], {}]
    assert audit("plain", "rude", "later") == [True, ["plain", "later"], rude]
    assert audit("plain", "rude", "later") == [False, ["plain", "later"], rude]
    assert audit("plain", "later", "asks") == [True, ["plain", "later", "asks"], rude]
    assert audit("asks") == [False, ["asks"], rude]
    # A variable or a file that an import reads has changed.
    env["MODE"] = "1"
    unfit = {"asks": "asks changes garbage collection"}
    assert audit("asks") == [True, [], unfit]
    assert audit("asks") == [False, [], unfit]
    del env["MODE"]
    assert audit("plain", "asks") == [True, ["plain", "asks"], {}]
    (tmp_path / "c").write_text("x")
    assert audit("plain", "asks") == [True, ["plain"], unfit]
    (tmp_path / "c").write_text("")
    # Neither is valid text.
    env["ODD"] = "\udcff"
    (site / "asks.py").write_text("import os\nos.environ.get('ODD')\nos.path.exists('/\\udcff')\n")
    assert audit("plain", "asks") == [True, ["plain", "asks"], {}]
    assert audit("plain", "asks") == [False, ["plain", "asks"], {}]
    # The file of a module has changed.
    (site / "plain.py").write_text("import gc\ngc.disable()\n")
    assert audit("plain") == [True, [], {"plain": "plain changes garbage collection"}]
