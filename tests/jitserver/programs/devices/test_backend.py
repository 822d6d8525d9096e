"""Versions that executables depend on, beside the versions of jax."""

import importlib.metadata
from pathlib import Path

import pytest

from jitserver.programs.devices import backend


def test_the_driver_and_the_libraries_of_nvidia_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is here: the form of the file is that of NVIDIA's kernel module."""
    for name in ("nvidia_cudnn_cu12-9.1", "other-2.0"):
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        distribution, _, version = name.partition("-")
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution.replace('_', '-')}\nVersion: {version}\n"
        )
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04\nGCC version: gcc 13\n")
    monkeypatch.setattr(backend, "distributions", lambda: importlib.metadata.distributions(path=[str(tmp_path)]))
    first = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04"
    assert backend.nvidia_versions(driver) == [first, "nvidia-cudnn-cu12 9.1"]
    assert backend.nvidia_versions(tmp_path / "none") == ["nvidia-cudnn-cu12 9.1"]
