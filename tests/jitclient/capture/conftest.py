"""Modules written by a test, imported as a user's would be."""

import importlib
import sys
import textwrap

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write user modules and give back the first: `write(um_a="...", um_b="...")`."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits come within a tick of the clock

    def write_modules(**sources):
        for name, source in sources.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        first = next(iter(sources))
        monkeypatch.delitem(sys.modules, first, raising=False)
        return importlib.import_module(first)

    before = set(sys.modules)
    yield write_modules
    for name in set(sys.modules) - before:
        if name.startswith("um_"):
            del sys.modules[name]
