"""Foreign functions that a program registers run in its own process, and the daemon compiles nothing for them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.ffi
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib import lapack

import jitclient
from jitclient.errors import CaptureError
from jitclient.jaxside import ffi, internals

NAME = "foreign_of_tests"


def root(x: Any) -> Any:
    """The Cholesky factor of a matrix, by jaxlib's own handler under a name that no daemon knows."""
    results = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), jnp.int32)
    return jax.ffi.ffi_call(NAME, results)(x, uplo=np.uint8(ord("L")))[0]


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    jnp.linalg.cholesky(jnp.eye(2)).block_until_ready()  # loads LAPACK
    jax.ffi.register_ffi_target(NAME, lapack._lapack.registrations()["lapack_spotrf_ffi"], platform="cpu")


def jaxpr_of(fun: Callable[..., Any]) -> Any:
    return jax.jit(fun).trace(jnp.eye(2)).jaxpr


def test_names_of_foreign_functions_also_in_inner_jaxprs() -> None:
    assert ffi.foreign_names(jaxpr_of(root)) == (NAME,)
    assert ffi.foreign_names(jaxpr_of(jax.jit(lambda x: jax.lax.map(root, x[None])))) == (NAME,)
    assert ffi.foreign_names(jaxpr_of(jnp.sin)) == ()


def test_what_this_process_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = jaxpr_of(root)
    ffi.raise_if_unknown(jaxpr, "cpu")
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {"another": None})
    with pytest.raises(CaptureError, match=f"has no foreign function {NAME}"):
        ffi.raise_if_unknown(jaxpr, "cpu")
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {})  # jax does not say
    ffi.raise_if_unknown(jaxpr, "cpu")


def test_whose_library_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = jaxpr_of(root)
    assert ffi.registered_by_program(jaxpr, "cpu") == ()  # jaxlib's
    libraries: list[str] = []
    monkeypatch.setattr(ffi, "is_installed_path", libraries.append)
    assert ffi.registered_by_program(jaxpr, "cpu") == (NAME,)
    assert "jaxlib" in libraries[0]
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {NAME: "no capsule"})
    assert ffi.registered_by_program(jaxpr, "cpu") == ()


@pytest.mark.usefixtures("daemon")
def test_the_daemon_compiles_nothing_for_it(counts: Callable[..., dict[str, Any]]) -> None:
    before = counts()["compiles"]
    for size in (2, 3):
        with pytest.raises(
            CaptureError, match=f"the program calls the foreign function {NAME}.*, whose code is only in this"
        ):
            jitclient.jit(lambda x: root(x) + 1)(jnp.eye(size))
    assert counts()["compiles"] == before


@pytest.mark.cpu(reason="foreign functions have names for each platform")
@pytest.mark.usefixtures("daemon")
def test_the_daemons_own_of_that_name_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ffi, "foreign_names", lambda jaxpr: (NAME,))  # as if this called one that the daemon has
    monkeypatch.setattr(ffi, "is_installed_path", lambda path: False)
    monkeypatch.setattr("jitclient.calls.own_trace.foreign_names", lambda jaxpr: (NAME,))
    with pytest.raises(CaptureError, match="whose code is only in this process"):
        jitclient.jit(lambda x: x * 4)(1.0)


def test_a_program_that_registers_one(
    new_daemon: Callable[..., Any], counts: Callable[..., Any], short_path: Any, run_script: Callable[..., Any]
) -> None:
    program = """
        import json, warnings
        import jax, jax.ffi, jax.numpy as jnp, numpy as np
        from jaxlib import lapack
        import jitclient

        jnp.linalg.cholesky(jnp.eye(2)).block_until_ready()
        jax.ffi.register_ffi_target("mine", lapack._lapack.registrations()["lapack_spotrf_ffi"], platform="cpu")

        @jitclient.jit
        def root(x):
            results = jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((), jnp.int32)
            return jax.ffi.ffi_call("mine", results)(x, uplo=np.uint8(ord("L")))[0]

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = [root(4 * jnp.eye(2)).tolist() for _ in range(2)]
        print(json.dumps([found, [str(warning.message) for warning in caught]]))
    """
    address = f"unix:{short_path}/d.sock"
    env = {"JITSERVER_ADDRESS": address, "JITSERVER_FALLBACK": "local"}
    with new_daemon(address):
        for _ in range(2):
            found, notes = run_script(program, env=env)
            assert found == [[[2, 0], [0, 2]]] * 2
            [note] = notes
            assert note.startswith("root runs in this process, on the cpu: the program calls the foreign function mine")
            assert "\n" not in note
        assert counts(address)["compiles"] == 0
        assert counts(address)["traces"] == 1
