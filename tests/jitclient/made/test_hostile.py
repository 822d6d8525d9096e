"""Bytes of a daemon that is not what it says: the client makes plain things of them, or refuses them."""

import dataclasses
import importlib.resources  # noqa: F401
import io
import json
import logging
import os
import pickle
import subprocess
import tempfile  # noqa: F401  (these two are named in bytes)
from typing import Any

import pytest

import jitclient.calls.remote_function  # noqa: F401
from jitclient.capture import capture
from jitclient.errors import CaptureError
from jitclient.made import making, places
from jitclient.made.unpickler import Remade

SEEN: list[Any] = []


class Reduced:
    """Pickles as it is told to, and can stand where pickle wants something to call."""

    def __init__(self, *parts: Any) -> None:
        self._parts = parts

    def __call__(self) -> None:
        raise AssertionError

    def __reduce__(self) -> Any:
        return self._parts


def named(module: str, name: str) -> Reduced:
    return Reduced(making.named, (module, name))


@dataclasses.dataclass
class Held:
    """What both sides hold, by its number or by the place of its code."""

    place: Any


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.place if isinstance(obj, Held) else None


def made_at(*place: Any) -> Reduced:
    return Reduced(making.function, (Held(place), "f", ()))


def dumped(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(value)
    return file.getvalue()


def no_trace(number: int) -> Any:
    raise AssertionError(number)


def remade(value: Any) -> Any:
    return Remade(capture(lambda x: x), dumped((value,)), no_trace).object_at(-1)


def touch() -> None:
    SEEN.append("ran")


TEMPORARY = ("tempfile", "_TemporaryFileCloser")

HOSTILE = {
    "a call of os.system": Reduced(os.system, ("exit 1",)),
    "a call of eval": Reduced(eval, ("touch()",)),
    "a call of what is named": Reduced(named("os", "system"), ("exit 1",)),
    "a call of an attribute that is named": Reduced(named("subprocess", "Popen.__init__"), (1,)),
    "a call of a partial": Reduced(Reduced(making.partial, ("functools", named("os", "system"), ("exit 1",), {})), ()),
    "a call of a method": Reduced(Reduced(making.method, (named("os", "system"), "exit 1")), ()),
    "a class that is called": Reduced(named("subprocess", "Popen"), (["false"],)),
    "a state for a module": Reduced(making.module, ("json",), {"dumps": touch}),
    "a state for a partial": Reduced(making.partial, ("functools", len, (), {}), {"a": 1}),
    "items for the environment": Reduced(making.named, ("os", "environ"), None, None, iter([("JITSERVER_X", "1")])),
    "items for a list that is named": Reduced(making.named, ("logging", "_handlerList"), None, iter([1, 2])),
    "an attribute of an installed function": Reduced(
        making.named, ("json", "dumps"), ((), (1,), None, {}), None, None, making.finish
    ),
    "attributes of an installed object": Reduced(
        making.named, ("json", "_default_encoder"), ({"x": 1}, {}), None, None, making.restore
    ),
    "cells of an installed function": Reduced(
        making.function, (Held(("json", 0, 1, "dump")), "f", named("importlib.resources", "as_file.__closure__"))
    ),
    "an object that does something when it goes": Reduced(making.instance, (named(*TEMPORARY),)),
    "an object of Python's own library": Reduced(making.instance, (named("logging", "Formatter"),)),
    "content for a cell of an installed function": Reduced(
        making.function,
        (Held(("json", 0, 1, "dump")), "f", ()),
        (((Reduced(making.cell, ()), 1), (named("json", "x"), 2)), None, None, {}),
        None,
        None,
        making.finish,
    ),
    "a slot that is none": Reduced(
        making.instance,
        (named("jitclient.calls.remote_function", "RemoteFunction"),),
        ({}, {"_jitted_here": 1}),
        None,
        None,
        making.restore,
    ),
    "no tuple at all": Reduced(making.tuple_of, (named("builtins", "dict"), ())),
    "a function of no place": Reduced(making.function, (1, "f", ())),
    "a place in no module": made_at("no_such_module", 0, 0, "f"),
    "a place that is not there": made_at("json", 0, 10_000, "f"),
    "a place of another name": made_at("json", 0, 1, "other"),
    "a place in no capture": made_at(None, -1, 0, ""),
    "a module that is not loaded": Reduced(making.named, ("antigravity", "geohash")),
    "an object of no capture": Held(10_000),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_is_refused(what: str) -> None:
    before = (dict(os.environ), json.dumps.__defaults__, list(logging._handlerList), vars(json)["dumps"])
    with pytest.raises(CaptureError):
        remade(HOSTILE[what])
    assert before == (dict(os.environ), json.dumps.__defaults__, list(logging._handlerList), vars(json)["dumps"])
    assert not SEEN


def test_an_object_that_a_named_class_makes_is_refused() -> None:
    data = dumped(named("collections", "deque")).removesuffix(pickle.STOP) + pickle.EMPTY_TUPLE
    with pytest.raises(CaptureError, match="not ours"):
        Remade(capture(lambda x: x), data + pickle.NEWOBJ + pickle.STOP, no_trace)


def test_what_is_named_is_a_value() -> None:
    assert remade((named("os", "system"), named("subprocess", "Popen"))) == (os.system, subprocess.Popen)


def test_a_function_by_its_place_is_the_installed_one_s_code() -> None:
    part = [code.co_qualname for code in places._codes_of("json")].index("dumps")
    func = remade(made_at("json", 0, part, "dumps"))
    assert func is not json.dumps
    assert func.__code__ == json.dumps.__code__
    assert func.__globals__ is vars(json)


@pytest.mark.parametrize("data", [b"x", b"\x80\x05", pickle.dumps((1,))[:-1], b"\x80\x05cos\nsystem\n.", b"." * 100])
def test_what_is_no_pickle_is_refused(data: bytes) -> None:
    with pytest.raises(CaptureError):
        Remade(capture(lambda x: x), data, no_trace)
