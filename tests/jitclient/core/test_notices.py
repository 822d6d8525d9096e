"""A notice of ours is a warning, and never an error of the program's."""

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax  # noqa: F401  (whose arrays are told of ours)
import pytest

from jitclient.core.notices import repeat, warn
from jitclient.jaxside import internals, interop
from jitclient.version import JAX


def test_a_notice_is_a_warning_at_the_users_line() -> None:
    with pytest.warns(RuntimeWarning, match="noticed") as caught:
        warn("noticed")
    assert caught[0].filename == __file__


def test_where_warnings_are_errors_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn("noticed")
    assert capsys.readouterr().err == "jitserver: noticed\n"


def test_what_shows_warnings_may_raise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: 1 / 0
        warn("noticed")
    assert capsys.readouterr().err == "jitserver: noticed\n"
    monkeypatch.setattr(sys, "stderr", object())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn("noticed")


def test_what_jax_warns_of_is_an_error_where_the_program_wants_that() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="of JAX"):
            repeat("of JAX", UserWarning)


def test_a_jax_that_takes_no_arrays_of_ours_is_noticed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(internals, "register_arrays", lambda *_: 1 / 0)
    interop._register_arrays(int, lambda array: None, lambda array: None)  # warnings are errors in tests
    said = capsys.readouterr().err
    assert "does not accept jitclient.Array" in said
    assert JAX in said


def test_all_kinds_of_notices_in_a_program(
    new_daemon: Callable[..., Any], short_path: Path, run_script: Callable[..., Any]
) -> None:
    program = """
        import json, os, warnings
        warnings.simplefilter("error")
        import jax, jax.numpy as jnp, numpy as np, jitclient

        @jitclient.jit
        def reads(x):  # runs in this process, which is noticed
            return jax.pure_callback(lambda y: y * 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + jnp.float32(
                os.environ["TERM_OF_TESTS"]
            )

        @jitclient.jit
        def double(x):
            return x * 2

        generator = np.random.default_rng(0)

        @jitclient.jit
        def drawn(x):
            return x + generator.integers(5)

        print(json.dumps([reads(1.0).tolist(), double(jnp.ones(2)).tolist(), drawn(1.0).shape]))
    """
    address = f"unix:{short_path}/d.sock"
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local", "TERM_OF_TESTS": "3"}
    with new_daemon(address):
        for _ in range(2):
            assert run_script(program, env=env) == [5.0, [2.0, 2.0], []]
