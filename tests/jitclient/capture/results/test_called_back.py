"""Callbacks that a daemon names: functions of the capture, and of what is installed only what the capture mentions."""

import json  # noqa: F401
import logging  # noqa: F401
import math
import pathlib  # noqa: F401
import pickle  # noqa: F401
import subprocess  # noqa: F401  (these are named in bytes)
from typing import Any

import jax
import numpy as np
import pytest

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.capture.results import places
from jitclient.capture.results.reader import CallbackFunctions
from jitclient.capture.results.writer import TraceObjects
from jitclient.errors import CaptureError
from jitclient.jaxside.callbacks import functions_of

FIRST = Reference(0)


def own(x: Any) -> Any:
    return np.sin(x)


CAPTURED = capture(lambda x: jax.pure_callback(own, x, x) + jax.pure_callback(np.sin, x, x))


def called_back(*steps: Reduced, root: Any = FIRST) -> Any:
    return CallbackFunctions(CAPTURED, values.to_bytes((steps, (root,)))).object_at(-1)


def named(module: str, name: str) -> Reduced:
    return Reduced("named", (module, name))


def made_at(module: str, qualname: str, *cells: Any) -> Reduced:
    part = [code.co_qualname for code in places._codes_of(module)].index(qualname)
    return Reduced("function", (Reduced("place", (module, 0, part, qualname.rpartition(".")[2])), "f", cells))


def partial(function: Any, *args: Any) -> Reduced:
    return Reduced("partial", ("functools", function, args, ()))


FLAT = Reduced("instance", (named("jax._src.callback", "_FlatCallback"),))


def flat(function: Any) -> tuple[Reduced, ...]:
    """Return JAX's wrapper of a callback."""
    return FLAT, Reduced("+restore", (0, (), (("callback_func", function), ("in_tree", None))))


USES, HAS_CODE = "uses .*, which the function does not mention", "has code of .*, which makes no callbacks"
HOSTILE: dict[str, tuple[str, tuple[Reduced, ...]]] = {
    "os.system": (USES, (partial(named("os", "system"), "exit 1"),)),
    "os.system, as JAX would wrap it": (USES, flat(named("os", "system"))),
    "pickle.loads": (USES, flat(named("pickle", "loads"))),
    "eval": (USES, flat(named("builtins", "eval"))),
    "a class whose objects do something": (USES, flat(named("subprocess", "Popen"))),
    "a name that is part of one in the capture": (USES, (partial(named("subprocess", "call"), "false"),)),
    "what gives attributes": (USES, flat(named("builtins", "getattr"))),
    "a method of an installed class": (USES, flat(named("pathlib", "Path.write_text"))),
    "an object of an installed class": (USES, (Reduced("instance", (named("logging", "Formatter"),)),)),
    "code of a package that the capture does not use": (HAS_CODE, (made_at("json", "dumps"),)),
    "code of JAX that is no callback": (HAS_CODE, (made_at("jax._src.api", "jit"),)),
    "a function of the module of JAX's callbacks": (HAS_CODE, (made_at("jax._src.callback", "pure_callback"),)),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_the_capture_does_not_mention_is_refused(what: str) -> None:
    refusal, steps = HOSTILE[what]
    with pytest.raises(CaptureError, match=refusal):
        called_back(*steps)


@pytest.mark.parametrize(("module", "name"), [("os", "system"), ("pickle", "loads"), ("builtins", "exec")])
def test_a_named_function_is_refused_by_its_name(module: str, name: str) -> None:
    with pytest.raises(CaptureError, match=f"a callback uses {module}.{name}, which the function does not mention"):
        called_back(root=named(module, name))


def test_what_the_capture_mentions_may_be_called() -> None:
    assert called_back(root=named("numpy", "sin")) is np.sin
    assert called_back(*flat(named("numpy", "sin"))).callback_func is np.sin
    with pytest.raises(CaptureError, match=r"numpy\.cos"):
        called_back(root=named("numpy", "cos"))


def test_what_is_no_function_may_be_named() -> None:
    assert called_back(root=named("math", "pi")) == math.pi


def test_a_daemons_callbacks_are_those_of_the_trace_in_this_process() -> None:
    """As a daemon describes them: `own`, in JAX's wrapping."""
    loaded = load(CAPTURED.payload, ())
    traced = jax.jit(loaded.fn).trace(np.float32(1))
    made = TraceObjects(loaded)
    for function in functions_of(traced, traced.lower()):
        made.add(function)
    [result] = CallbackFunctions(CAPTURED, made.to_bytes()).object_at(-1)(np.float32(1))
    assert result == np.sin(np.float32(1))


def test_nodes_of_trees_may_be_named() -> None:
    for module, name in (("types", "NoneType"), ("collections", "OrderedDict"), ("optax", "ScaleByAdamState")):
        __import__(module)
        assert called_back(root=named(module, name)).__name__ == name
