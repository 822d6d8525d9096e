"""Foreign functions: those of installed packages run on the daemon, and those of the program in its own process."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
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
from jitclient.wire.messages import ForeignFunction

from ...running_daemon import run_daemon

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


def names_of(fun: Callable[..., Any]) -> list[str]:
    return [function.name for function in ffi.foreign_functions(jaxpr_of(fun), "cpu")]


def test_names_of_foreign_functions_also_in_inner_jaxprs() -> None:
    assert names_of(root) == [NAME]
    assert names_of(jax.jit(lambda x: jax.lax.map(root, x[None]))) == [NAME]
    assert names_of(jnp.sin) == []


def test_what_this_process_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = jaxpr_of(root)
    ffi.raise_if_unknown(jaxpr, "cpu")
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {"another": None})
    with pytest.raises(CaptureError, match=f"has no foreign function {NAME}"):
        ffi.raise_if_unknown(jaxpr, "cpu")
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {})  # jax does not say
    ffi.raise_if_unknown(jaxpr, "cpu")


def test_the_place_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    jaxpr = jaxpr_of(root)
    [found] = ffi.foreign_functions(jaxpr, "cpu")
    assert (found.module, found.library.split("/")[0]) == ("jaxlib", "jaxlib")
    assert not ffi.can_register(found), "it has no symbol"
    assert not ffi.is_of_program(found)
    assert ffi.foreign_functions(jaxpr, "plugin") == (ForeignFunction(NAME),)
    monkeypatch.setattr(ffi, "is_installed_path", lambda path: False)
    [found] = ffi.foreign_functions(jaxpr, "cpu")
    assert ffi.is_of_program(found)
    monkeypatch.setattr(internals, "foreign_functions", lambda platform: {NAME: "no capsule"})
    assert ffi.foreign_functions(jaxpr, "cpu") == (ForeignFunction(NAME),)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (ForeignFunction("n", "no_such_package", "a", (("execute", "f"),)), "no_such_package is not an installed"),
        (ForeignFunction("n", "os", "a", (("execute", "f"),)), "os is not an installed package"),
        (ForeignFunction("n", "numpy", "numpy/a.so", (("execute", ""),)), "the import of numpy does not register it"),
        (ForeignFunction("n", "numpy", "numpy/a.so", (("execute", "f"),)), "numpy/a.so: cannot open"),
        (ForeignFunction(NAME, "numpy", "numpy/a.so", (("execute", "f"),)), "another function has that name"),
    ],
)
def test_a_function_that_cannot_be_registered(function: ForeignFunction, why: str) -> None:
    with pytest.raises(CaptureError, match=why):
        ffi.register([function])


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
    mine = ForeignFunction(NAME, "", "/of/the/program.so")  # as if this called one that the daemon has
    monkeypatch.setattr(ffi, "foreign_functions", lambda jaxpr, platform: (mine,))
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


HANDLER = """
#include "xla/ffi/api/c_api.h"

XLA_FFI_Error* NAME(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    XLA_FFI_Api_Version* version = &((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata->api_version;
    version->major_version = XLA_FFI_API_MAJOR;
    version->minor_version = XLA_FFI_API_MINOR;
    return NULL;
  }
  XLA_FFI_Buffer *from = frame->args.args[0], *to = frame->rets.rets[0];
  for (long i = 0; i < from->dims[0]; i++) ((float*)to->data)[i] = FACTOR * ((float*)from->data)[i];
  return NULL;
}
"""

PACKAGE = """
import ctypes, jax, jax.ffi

library = ctypes.CDLL(__file__.replace("__init__.py", "ops.so"))

def register(name, symbol):
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(library[symbol]), platform="cpu")

register("of_package.at_import", "Double")
"""

PROGRAM = """
import json, sys
import jax, jax.ffi, numpy as np
import jitclient, of_package

{register}

@jitclient.jit
def scaled(x):
    return jax.ffi.ffi_call("{name}", jax.ShapeDtypeStruct(x.shape, x.dtype))(x) + len(of_package.__name__)

print(json.dumps(np.asarray(scaled(np.ones(2, np.float32))).tolist()))
"""


@pytest.fixture
def package(short_path: Path) -> Path:
    """The folder of an installed package with two foreign functions, one of which its import registers."""
    compiler = shutil.which("cc") or pytest.skip("NOT TESTED HERE: foreign functions of packages, without a C compiler")
    folder = short_path / "site-packages" / "of_package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(PACKAGE)
    functions = {"Double": 2, "Negate": -1}
    source = "".join(HANDLER.replace("NAME", name).replace("FACTOR", str(by)) for name, by in functions.items())
    command = [compiler, "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}", "-xc", "-", "-o", str(folder / "ops.so")]
    subprocess.run(command, input=source, text=True, check=True)
    return folder


@pytest.mark.cpu(reason="plugins register foreign functions where only XLA sees them")
@pytest.mark.timeout(300)
def test_the_daemon_registers_functions_of_packages(
    package: Path, short_path: Path, counts: Callable[..., Any], run_script: Callable[..., Any]
) -> None:
    address = f"unix:{short_path}/d.sock"
    env = {"PYTHONPATH": os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])}

    def run(name: str, symbol: str = "", **more: str) -> Any:
        register = f"of_package.register({name!r}, {symbol!r})" if symbol else ""
        program = PROGRAM.format(register=register, name=name)
        return run_script(program, env={**env, "JITSERVER_ADDRESS": address, **more})

    def counted() -> dict[str, int]:
        return {name: counts(address)[name] for name in ("compiles", "traces", "local_runs")}

    with run_daemon(address, short_path / "cache", env=env):
        assert run("of_package.at_import") == [12, 12]
        assert run("late", "Double") == [12, 12]
        once = counted()
        assert (once["compiles"], once["local_runs"]) == (2, 0)
        assert run("of_package.at_import") == run("late", "Double") == [12, 12]
        assert counted() == once, "all was found"
        # The same function under the same name, with other code behind it.
        assert run("late", "Negate", JITSERVER_FALLBACK="local") == [9, 9]
        assert counts(address)["local_runs"] == 1
    with run_daemon(address, short_path / "cache", env=env):
        assert run("of_package.at_import") == run("late", "Double") == [12, 12]
        assert counted() == {"compiles": 0, "traces": 0, "local_runs": 0}, "the executables are loaded"
