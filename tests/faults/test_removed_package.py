"""A program whose installation of jitserver is removed or replaced continues in its own process, after one warning."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import jitclient
import jitserver

PROGRAM = """
    import json, os, pathlib, shutil, signal, sys, warnings
    import jax, jax.numpy as jnp, numpy as np
    import jitclient

    site, daemon, replaced = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "replaced"
    assert jitclient.__file__.startswith(str(site))

    @jitclient.jit
    def double(x):
        return x * 2

    values = [double(np.float32(1)).item()]
    for package in ("jitclient", "jitserver"):
        shutil.rmtree(site / package)
        if replaced:  # by a version that shares nothing with this one
            (site / package).mkdir()
            (site / package / "__init__.py").touch()
    os.kill(daemon, signal.SIGKILL)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        values += [double(np.float32(2)).item(), double(np.ones(3, np.float32)).sum().item()]

        @jitclient.jit
        def fails(x):
            return x @ jnp.ones((7, 7))

        try:
            fails(np.ones(3, np.float32))
        except TypeError as error:
            values.append(type(error).__name__)
    print(json.dumps([values, [str(each.message) for each in warned]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_program_continues_without_its_package(how: str, own: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    for package in (jitserver, jitclient):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    with own.serving() as process:
        values, warned = own.run(
            PROGRAM,
            *map(str, (site, process.pid, how)),
            PYTHONPATH=str(site),
            JITSERVER_AUTOSTART="1",
            JITSERVER_FALLBACK="local",
        )
        process.wait()
    assert values == [2, 4, 6, "TypeError"]
    assert len(warned) == 1, warned
    assert "no daemon answers, and none can be started: jitserver was removed" in warned[0]
