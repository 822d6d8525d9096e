"""A program whose installation of jitserver is removed or replaced continues in its own process, after one warning."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import jitclient
import jitserver
from jitclient.wire.messages import PROTOCOL

PROGRAM = """
    import json, os, pathlib, shutil, signal, sys, warnings
    import jax, jax.numpy as jnp, numpy as np
    import jitclient

    site, daemon, replacement = pathlib.Path(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    assert jitclient.__file__.startswith(str(site))

    @jitclient.jit
    def double(x):
        return x * 2

    values = [double(np.float32(1)).item()]
    for package in ("jitclient", "jitserver"):
        shutil.rmtree(site / package)
        if replacement.exists():
            shutil.copytree(replacement / package, site / package)
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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages of jitserver, installed in a folder of the test's own."""
    for package in (jitserver, jitclient):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, tmp_path / "site" / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "site"


@pytest.fixture
def run(own: Any, site: Path, tmp_path: Path) -> Callable[[], Any]:
    """Runs the program, and returns its values and warnings."""

    def run() -> Any:
        with own.serving() as process:
            found = own.run(
                PROGRAM,
                *map(str, (site, process.pid, tmp_path / "replacement")),
                PYTHONPATH=str(site),
                JITSERVER_AUTOSTART="1",
                JITSERVER_FALLBACK="local",
            )
            process.wait()
        return found

    return run


@pytest.mark.slow
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_program_continues_without_its_package(how: str, run: Callable[[], Any], tmp_path: Path) -> None:
    if how == "replaced":  # by a version that shares nothing with this one
        for package in ("jitclient", "jitserver"):
            (tmp_path / "replacement" / package).mkdir(parents=True)
            (tmp_path / "replacement" / package / "__init__.py").touch()
    values, warned = run()
    assert values == [2, 4, 6, "TypeError"]
    assert len(warned) == 1, warned
    assert "no daemon answers, and none can be started: jitserver was removed" in warned[0]


@pytest.mark.slow
def test_a_program_continues_beside_a_newer_version(
    run: Callable[[], Any], site: Path, own: Any, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    newer = tmp_path / "replacement"
    shutil.copytree(site, newer)
    for file, old, new in (
        ("version.py", f'"{jitclient.__version__}"', '"99.0"'),
        ("wire/messages.py", f"PROTOCOL = {PROTOCOL}", "PROTOCOL = 99"),
    ):
        path = newer / "jitclient" / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    try:
        values, warned = run()
    finally:
        cli("stop", env={"JITSERVER_ADDRESS": own.address, "PYTHONPATH": str(site)})
    assert values == [2, 4, 6, "TypeError"]
    assert len(warned) == 1, warned
    assert f"protocol is {PROTOCOL} here and 99 there" in warned[0]
