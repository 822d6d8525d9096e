"""Compilations by their text, on storage that hangs or fails."""

import threading
from pathlib import Path

import pytest

from jitclient.jaxside.compilation_cache import CompilationCache
from jitserver.programs import executables


def test_a_compilation_waits_for_no_storage_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, answers = executables._Compilations(tmp_path, 0.0, 1 << 30, None), threading.Event()
    cache.put("key", b"executable", 1.0)
    assert cache.get("key") == (b"executable", 1.0)
    assert cache.get("unknown") is None
    own = CompilationCache.get
    monkeypatch.setattr(CompilationCache, "get", lambda *arguments: answers.wait() and own(*arguments))
    monkeypatch.setattr(executables, "_STORAGE_SECONDS", 0.01)
    try:
        assert cache.get("key") is None
        cache.put("other", b"executable", 1.0)
        assert not (tmp_path / "other").exists()
    finally:
        answers.set()
