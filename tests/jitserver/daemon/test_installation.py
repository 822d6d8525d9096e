"""A daemon exits when its package was removed, but not while pip replaces it."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import jitclient
import jitserver
from jitserver.daemon.installation import Installation


def test_a_package_is_gone_only_if_it_stays_missing(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.touch()
    installation = Installation(file)
    assert not installation.is_gone(0.0)
    file.unlink()
    assert not installation.is_gone(100.0)
    assert not installation.is_gone(110.0)
    file.touch()  # an upgrade
    assert not installation.is_gone(140.0)
    file.unlink()
    assert not installation.is_gone(150.0)
    assert installation.is_gone(180.0)


@pytest.mark.slow
def test_a_daemon_without_its_package_exits(own: Any, tmp_path: Path) -> None:
    for package in (jitserver, jitclient):
        source = Path(package.__file__ or "").parent
        shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    copied = tmp_path / "jitserver" / "daemon" / "installation.py"
    text, changes = re.subn(r"^_GONE_SECONDS = .*$", "_GONE_SECONDS = 0.5", copied.read_text(), flags=re.MULTILINE)
    assert changes == 1
    copied.write_text(text)
    with own.serving(PYTHONPATH=str(tmp_path)) as process:
        shutil.rmtree(tmp_path / "jitserver")
        shutil.rmtree(tmp_path / "jitclient")
        assert process.wait(120) == 0
        assert not (own.folder / "d.sock").exists()
