"""Checks of what surrounds an environment: the command that a shell finds, plugins, file systems, containers."""

import importlib.metadata
import os
import sysconfig
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitserver.cli.checks import environment, machine

STATE: Any = None


def test_the_command_that_a_shell_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = tmp_path / "own" / "jitserver", tmp_path / "openj9" / "jitserver"
    for file in (own, other):
        file.parent.mkdir()
        file.write_text("#!/bin/sh")
        file.chmod(0o755)
    (link := tmp_path / "bin" / "jitserver").parent.mkdir()
    link.symlink_to(own)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(own.parent))
    for first, level in ((own, "ok"), (link, "ok"), (other, "warning")):
        monkeypatch.setenv("PATH", os.pathsep.join([str(first.parent), str(own.parent)]))
        found = environment.command(STATE)
        assert (found.level, str(first) in found.says) == (level, True)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.command(STATE).level == "ok"


@pytest.mark.parametrize(("version", "levels"), [("1.2", ["ok"]), ("1.1", ["warning"])])
def test_a_plugin_of_another_version(version: str, levels: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"jax-cuda13-plugin": version, "of-others": "7"}
    points = [SimpleNamespace(dist=SimpleNamespace(name=name, version=each)) for name, each in names.items()]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(environment, "_installed", lambda name: "1.2")
    assert [found.level for found in environment.plugins(STATE)] == levels


def test_a_cache_on_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path.resolve()
    monkeypatch.setattr(machine, "cache_root", lambda: home / "not" / "there")
    monkeypatch.setattr(machine, "_MOUNTS", home / "mounts")
    for kinds, level in ((["ext4", "nfs4"], "warning"), (["nfs4", "ext4"], "ok")):
        rows = ["rootfs / overlay rw 0 0", *(f"server {home} {kind} rw 0 0" for kind in kinds)]
        (home / "mounts").write_text("\n".join(rows))
        found = machine.file_system(STATE)
        assert (found.level, kinds[-1] in found.says) == (level, True)


@pytest.mark.parametrize(("is_possible", "level"), [(True, "ok"), (False, "warning")])
def test_a_container_without_shared_memory(is_possible: bool, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "possible", lambda: is_possible)
    assert machine.shared_memory(STATE).level == level
