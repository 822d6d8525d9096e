"""Bytes of a daemon that is not what it says: the client makes plain things of them, or refuses them."""

import importlib.resources  # noqa: F401
import json
import logging
import os
import pickle
import subprocess
import tempfile  # noqa: F401  (these two are named in bytes)
from typing import Any

import pytest

import jitclient.calls.remote_function  # noqa: F401
from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.dump import capture
from jitclient.capture.results import places
from jitclient.capture.results.reader import RebuiltObjects
from jitclient.errors import CaptureError

SEEN: list[Any] = []


def touch() -> None:
    SEEN.append("ran")


FIRST = Reference(0)


def remade(*steps: Reduced, root: Any = FIRST) -> Any:
    return read(values.to_bytes((steps, (root,))))


def read(data: bytes) -> Any:
    return RebuiltObjects(capture(lambda x: x), data).object_at(-1)


def named(module: str, name: str) -> Reduced:
    return Reduced("named", (module, name))


def place(*parts: Any) -> Reduced:
    return Reduced("place", parts)


def made_at(*parts: Any) -> Reduced:
    return Reduced("function", (place(*parts), "f", ()))


SYSTEM, TEMPORARY = named("os", "system"), named("tempfile", "_TemporaryFileCloser")
REMOTE = named("jitclient.calls.remote_function", "RemoteFunction")

CALL = Reduced("partial", ("functools", named(__name__, "touch"), (), ()))
DUMPS = [code.co_qualname for code in places._codes_of("json")].index("dumps")

HOSTILE: dict[str, list[Reduced]] = {
    "a call of what is named": [Reduced("call", (SYSTEM, ("exit 1",)))],
    "a call of an attribute": [Reduced("attribute", (SYSTEM, "__call__"))],
    "a maker that a module holds": [Reduced("system", ("exit 1",))],
    "what captures are made with": [Reduced("installed", ("os", "system"))],
    "a completion of what is named": [Reduced("+set_items", (named("os", "environ"), (("JITSERVER_X", "1"),)))],
    "a completion of what is not there": [Reduced("+set_items", (0, (("a", 1),)))],
    "a completion of what is counted from the end": [Reduced("empty", ("dict",)), Reduced("+set_items", (-1, ()))],
    "a completion of what the capture has": [Reduced("+finish", (Reduced("held", (0,)), None, None, ()))],
    "items for a function": [made_at("json", 0, 1, "dump"), Reduced("+extend", (0, (1,)))],
    "a cell's content for a dict": [Reduced("empty", ("dict",)), Reduced("+set_cell", (0, 1))],
    "attributes of a dict": [Reduced("empty", ("dict",)), Reduced("+restore", (0, (("a", 1),), ()))],
    "attributes of a partial": [
        Reduced("partial", ("functools", SYSTEM, (), ())),
        Reduced("+restore", (0, (("a", 1),), ())),
    ],
    "a container that is none": [Reduced("empty", ("Popen",))],
    "a plain thing that is none": [Reduced("plain", ("Popen", ("false",)))],
    "a member of no enum": [
        Reduced("partial", ("functools", Reduced("member", (named("os", "environ"), "HOME")), (), ()))
    ],
    "cells of an installed function": [
        Reduced("function", (place("json", 0, 1, "dump"), "f", named("importlib.resources", "as_file.__closure__")))
    ],
    "a cell of an installed function": [
        Reduced("function", (place("json", 0, 1, "dump"), "f", (named("importlib.resources", "as_file"),)))
    ],
    "an object that does something when it goes": [Reduced("instance", (TEMPORARY,))],
    "an object of Python's own library": [Reduced("instance", (named("logging", "Formatter"),))],
    "an object of what is no class": [Reduced("instance", (SYSTEM,))],
    "a slot that is none": [Reduced("instance", (REMOTE,)), Reduced("+restore", (0, (), (("_jitted_here", 1),)))],
    "no tuple at all": [Reduced("tuple_of", (named("builtins", "dict"), ()))],
    "a function of no place": [Reduced("function", (1, "f", ()))],
    "a function of code that is named": [Reduced("function", (named("json", "dumps.__code__"), "f", ()))],
    "a place in no module": [made_at("no_such_module", 0, 0, "f")],
    "a place that is not there": [made_at("json", 0, 10_000, "f")],
    "a place of another name": [made_at("json", 0, 1, "other")],
    "a place in no capture": [made_at(None, -1, 0, "")],
    "a module that is not loaded": [Reduced("weak", (named("antigravity", "geohash"),))],
    "an object of no capture": [Reduced("weak", (Reduced("held", (10_000,)),))],
    "keywords of an object whose keys are a call": [
        CALL,
        Reduced("instance", (named("jitclient.capture.graph.set_order", "_Found"),)),
        Reduced("+restore", (1, (("keys", FIRST),), ())),
        Reduced("partial", ("functools", SYSTEM, (), Reference(1))),
    ],
    "items of an object whose keys are a call": [
        CALL,
        Reduced("instance", (named("jitclient.capture.graph.set_order", "_Found"),)),
        Reduced("+restore", (1, (("keys", FIRST),), ())),
        Reduced("empty", ("dict",)),
        Reduced("+set_items", (2, Reference(1))),
    ],
    "an array of an object that says how it is one": [
        CALL,
        Reduced("instance", (named("jitclient.capture.graph.set_order", "_Found"),)),
        Reduced("+restore", (1, (("__jax_array__", FIRST), ("__array__", FIRST)), ())),
        Reduced("jax_array", (Reference(1), False)),
    ],
    "a signature that is a call": [
        CALL,
        made_at("json", 0, DUMPS, "dumps"),
        Reduced("+finish", (1, None, None, (("__signature__", FIRST),))),
        Reduced("jit", (Reference(1), ())),
    ],
    "a jitted call": [CALL, Reduced("jit", (FIRST, ()))],
    "a tree's node of no class": [
        CALL,
        Reduced("instance", (named("jitclient.capture.graph.set_order", "_Found"),)),
        Reduced("+restore", (1, (("__mro__", (FIRST,)), ("__new__", FIRST)), ())),
        Reduced("treedef", (False, (Reference(1), None), ())),
    ],
    "a path of another name": [
        Reduced("tuple_of", (named("builtins", "tuple"), (Reduced("path_entry", ("Partial", 1)),)))
    ],
    "a path of what is not plain": [
        Reduced("cell", ()),
        Reduced("+set_cell", (0, Reduced("path_entry", ("DictKey", FIRST)))),
    ],
    "an object that is not made yet": [Reduced("weak", (Reference(1),)), Reduced("empty", ("list",))],
}


def state() -> Any:
    return dict(os.environ), json.dumps.__defaults__, list(logging._handlerList), vars(json)["dumps"]


@pytest.mark.parametrize("what", HOSTILE)
def test_is_refused(what: str) -> None:
    before = state()
    with pytest.raises(CaptureError):
        remade(*HOSTILE[what])
    assert before == state()
    assert not SEEN


@pytest.mark.parametrize("filled", [Reduced("+set_items", (1, ((FIRST, 1),))), Reduced("+update", (1, (FIRST,)))])
def test_a_key_with_a_hash_of_its_own_is_refused_before_it_is_hashed(filled: Reduced) -> None:
    hashes_itself = Reduced("instance", (named("jitclient.jaxside.options", "JitOptions"),))
    container = Reduced("empty", ("dict" if filled.maker == "+set_items" else "set",))
    with pytest.raises(CaptureError, match="its class defines __hash__"):
        remade(hashes_itself, container, filled)


class Reducing:
    """An object that pickles as the test says."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __reduce__(self) -> Any:
        return self._parts


PICKLES = {
    "a call of os.system": Reducing(os.system, ("exit 1",)),
    "a call of eval": Reducing(eval, ("touch()",)),
    "a class that is called": Reducing(subprocess.Popen, (["false"],)),
    "a state for a type": Reducing(complex, (1, 2), {"real": touch}),
    "an object by its class": Reducing(pickle.loads, (pickle.dumps(1),)),
}


@pytest.mark.parametrize("what", PICKLES)
def test_a_pickle_of_another_is_refused(what: str) -> None:
    with pytest.raises(CaptureError):
        read(pickle.dumps((((),), (PICKLES[what],))))
    assert not SEEN


def test_what_is_named_is_a_value() -> None:
    found = remade(root=(SYSTEM, named("subprocess", "Popen")))
    assert found == (os.system, subprocess.Popen)


def test_a_function_by_its_place_is_the_installed_one_s_code() -> None:
    part = [code.co_qualname for code in places._codes_of("json")].index("dumps")
    func = remade(made_at("json", 0, part, "dumps"), Reduced("+finish", (0, (1,), None, (("a", 1),))))
    assert func is not json.dumps
    assert func.__code__ == json.dumps.__code__
    assert func.__globals__ is vars(json)
    assert (func.__defaults__, vars(func)) == ((1,), {"a": 1})
    assert json.dumps.__defaults__ is None


@pytest.mark.parametrize("data", [b"x", b"\x80\x05", pickle.dumps((1,))[:-1], b"\x80\x05cos\nsystem\n.", b"." * 100])
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(CaptureError):
        read(data)
