"""The extension of IPython, in shells of their own processes."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from jitserver import notebooks
from jitserver.notebooks import ProgressDisplay

SHELL = """
    import contextlib, io, json, os, sys
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()

    def run(cell):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            done = shell.run_cell(cell)
        error = done.error_in_exec or done.error_before_exec
        return said.getvalue() if error is None else f"{type(error).__name__}: {error}"
"""
SET_UP = """
    assert run("%load_ext jitserver\\nimport jax, jax.numpy as jnp") == ""
    assert run("step = jax.jit(lambda params, x: (params * x).sum())\\nparams, x = jnp.arange(3.0), jnp.ones(3)") == ""
"""


def test_cells_run_on_the_daemon_and_another_kernel_finds_all(own: Any) -> None:
    program = f"""{SHELL}{SET_UP}
    kept = run("%jitserver kept params") if "again" in sys.argv else run("%jitserver keep params")
    ran = run("print(float(step(params, x)), type(params).__module__, len(params), params.nbytes)")
    print(json.dumps([kept, ran, run("%jitserver")]))
    """
    with own.serving():
        kept, ran, shown = own.run(program)
        assert kept == ""
        assert ran == "3.0 jitclient.arrays.array 3 12\n"
        assert "daemon    pid" in shown
        assert "<lambda>(f32[3], f32[3])  made in" in shown

        kept, ran, shown = own.run(program, "again")
        assert (kept, ran) == ("", "3.0 jitclient.arrays.array 3 12\n")
        assert "found in memory" in shown
        assert own.counts()["traces"] == 1


def test_mistakes_are_errors_of_usage_and_no_daemon_is_said(own: Any) -> None:
    program = f"""{SHELL}{SET_UP}
    cells = ["%jitserver kep x", "%jitserver keep nothing", "%jitserver keep", "%jitserver 'x", "%jitserver"]
    print(json.dumps([run(cell) for cell in cells]))
    """
    command, variable, names, quoted, shown = own.run(program, JITSERVER_FALLBACK="local")
    usage = "Use %jitserver, %jitserver keep NAME ... or %jitserver kept NAME ..."
    assert command == names == f"UsageError: {usage}"
    assert variable == "UsageError: there is no variable 'nothing'"
    assert quoted == f"UsageError: No closing quotation. {usage}"
    assert shown.startswith("daemon    none: no daemon answers")


def test_unloading_restores_all(own: Any) -> None:
    program = f"""{SHELL}{SET_UP}
    with_it = run("print(type(jax.jit(len)).__module__)")
    assert run("%unload_ext jitserver") == ""
    without = run("print(type(jax.jit(len)).__module__)")
    print(json.dumps([with_it, without, run("%jitserver")]))
    """
    with_it, without, magic = own.run(program)
    assert with_it.startswith("jitclient")
    assert not without.startswith("jitclient")
    assert magic == "UsageError: Line magic function `%jitserver` not found."


def test_unloading_leaves_an_installation_of_the_users_own(own: Any) -> None:
    program = f"""{SHELL}
    run("import jax, jitclient; jitclient.install()")
    run("%load_ext jitserver")
    run("%unload_ext jitserver")
    print(json.dumps(run("print(type(jax.jit(len)).__module__)")))
    """
    assert own.run(program).startswith("jitclient")


def test_a_line_that_was_removed_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = SimpleNamespace(update=lambda html: shown.append(html.data))
    monkeypatch.setattr(notebooks, "display", lambda html, display_id: handle)

    class EndsInTheMeantime(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            line.stop()
            return False if len(shown) == 1 else super().wait(timeout)

    line = ProgressDisplay("compiling f(f32[3])")
    line._stopped = EndsInTheMeantime()
    line._handle = handle  # type: ignore[assignment]
    line._refresh()
    assert set(shown) == {""}


def test_a_line_below_the_cell_shows_the_work_and_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    updated = threading.Event()

    class Handle:
        def update(self, html: Any) -> None:
            shown.append(html.data)
            updated.set()

    def display(html: Any, display_id: bool) -> Handle:
        shown.append(html.data)
        return Handle()

    monkeypatch.setattr(notebooks, "display", display)
    monkeypatch.setattr(notebooks, "_PERIOD_SECONDS", 0.01)
    short = ProgressDisplay("compiling f(f32[3])")
    short.stop()
    assert not shown
    line = ProgressDisplay("compiling f(f32[3])")
    line.start()
    line.describe("tracing <f>")
    updated.clear()
    assert updated.wait(60)
    line.stop()
    assert "compiling f(f32[3])" in shown[0]
    assert any("tracing &lt;f&gt;" in text for text in shown)
    assert shown[-1] == ""
