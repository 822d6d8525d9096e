"""Two programs differ in words if and only if a row of their keys does; the nearest relative is compared."""

import textwrap
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jitclient.capture.codec import values
from jitclient.core.digests import digest
from jitclient.wire.explaining import Difference, Why
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import UNOBSERVED, Lookup, Manifest, Prepare, Signature, Spec
from jitserver.store.entry import KeyComponents, Stored
from jitserver.store.explain import differences, explain
from jitserver.store.key_parts import Compared

SIGNATURE = Signature(b"", (Spec((2,), "float32"),), ((1, values.encode(2)),), (), (), ())
LOOKUP = Lookup("a" * 32, "a" * 32, ("numpy",), SIGNATURE)
REQUEST = Prepare(LOOKUP, "f", "/me/a.py:1", names=("x", "n"))
ONE = values.encode(1)


def compared(request: Prepare = REQUEST, context: dict[str, str] | None = None, **rows: Any) -> Compared:
    return Compared({name: digest(repr(value).encode()) for name, value in rows.items()}, context or {}, request)


def said(old: Compared, new: Compared) -> list[str]:
    return [str(difference) for difference in differences(old, new)]


def changed(**fields: Any) -> Prepare:
    signature = msgspec.structs.replace(SIGNATURE, **fields)
    return msgspec.structs.replace(REQUEST, lookup=msgspec.structs.replace(LOOKUP, signature=signature))


@pytest.mark.parametrize(
    ("row", "request_of_new", "text"),
    [
        ("capture", REQUEST, "code or values of f: changed"),
        ("leaves", changed(leaves=(Spec((3,), "float32"),)), "argument x: float32[2] -> float32[3]"),
        ("statics", changed(statics=((1, values.encode(3)),)), "static n: 2 -> 3"),
        ("donated", changed(donated=(0,)), "donated arguments: none -> x"),
        ("options", changed(options=(("inline", values.encode(True)),)), "option inline: new, True"),
        ("settings", changed(context=(("jax_enable_x64", values.encode(True)),)), "jax_enable_x64: False -> True"),
        ("tree", changed(tree=values.to_bytes(None)), "structure of the arguments: there -> *"),
        ("manifest", REQUEST, "data of installed packages: changed"),
        ("later", REQUEST, "later: changed"),
    ],
)
def test_a_row_that_differs_has_words(row: str, request_of_new: Prepare, text: str) -> None:
    assert said(compared(**{row: 1}), compared(request_of_new, **{row: 2})) == [text]
    assert said(compared(**{row: 1}), compared(request_of_new, **{row: 1})) == []


def test_versions_and_facts_of_the_process_are_named() -> None:
    old = compared(context={"numpy": "2.1", "python": "3.11"}, packages=1, process=1)
    new = compared(context={"numpy": "2.2", "python": "3.12"}, packages=2, process=2)
    assert said(old, new) == ["numpy: 2.1 -> 2.2", "python: 3.11 -> 3.12"]


def test_arguments_with_names_come_instead_of_their_structure() -> None:
    old = compared(leaves=1, tree=1)
    signature = msgspec.structs.replace(SIGNATURE, leaves=(*SIGNATURE.leaves, Spec((), "int32")))
    more = msgspec.structs.replace(
        REQUEST, names=("x", "more[0]", "n"), lookup=msgspec.structs.replace(LOOKUP, signature=signature)
    )
    assert said(old, compared(more, leaves=2, tree=2)) == ["argument more[0]: new, int32[]"]


@pytest.mark.parametrize(
    ("names", "state", "texts"),
    [
        (("flax.config:depth", "jax:x"), (b"value 2", b"1"), ["flax.config.depth: 1 -> 2"]),
        (("flax.config:depth", "jax:x"), (b"0123456789abcdef", b"1"), ["flax.config.depth: 1 -> there"]),
        (("flax.config:depth",), (b"absent",), ["flax.config.depth: 1 -> missing"]),
        (("flax.other:depth",), (b"value 2",), ["data of installed packages: changed"]),
    ],
)
def test_data_of_packages_has_its_name_and_value(names: Any, state: Any, texts: list[str]) -> None:
    held = Manifest(("flax.config:depth", "jax:x"), (b"value 1", b"1"))
    old = compared(msgspec.structs.replace(REQUEST, manifest=held), manifest=1)
    cached = compared(msgspec.structs.replace(REQUEST, manifest=Manifest(names, state)), manifest=2)
    assert said(old, cached) == texts
    asked = msgspec.structs.replace(LOOKUP, manifests=(Manifest(names, state),))
    assert said(old, compared(msgspec.structs.replace(REQUEST, lookup=asked))) == texts


def test_trace_that_was_not_observed_has_its_reason() -> None:
    unobserved = Manifest((f"{UNOBSERVED}too much: state",), (b"random",))
    old = compared(msgspec.structs.replace(REQUEST, manifest=unobserved), manifest=1)
    assert said(old, compared(msgspec.structs.replace(REQUEST, manifest=Manifest()), manifest=2)) == ["too much: state"]


@pytest.mark.parametrize(
    ("difference", "text"),
    [
        (Difference("helper um.scale: code", "", "", "um.py:12"), "helper um.scale: code changed (um.py:12)"),
        (Difference("code of step", "", "", "a.py:3"), "code of step: changed (a.py:3)"),
        (Difference("helper um.scale: code", None, "", "um.py:12"), "helper um.scale: new (um.py:12)"),
        (Difference("helper um.scale: code", "", None), "helper um.scale: gone"),
        (Difference("same code as step", None, None, "a.py:3"), "same code as step (a.py:3)"),
        (Difference("global K", "Box(…)", "Box(…)"), "global K: changed"),
        (Difference("numpy", "2.1", "2.2"), "numpy: 2.1 -> 2.2"),
    ],
)
def test_differences_read_well(difference: Difference, text: str) -> None:
    assert str(difference) == text


class Cache:
    """Programs of one argument, made from sources one after the other; each explains the last."""

    def __init__(self, captured: Callable[..., Any]) -> None:
        self._captured = captured
        self._stored: dict[str, Stored] = {}
        self._captures: dict[str, bytes] = {}

    def add(self, source: str, name: str = "step", file: str = "/me/train.py") -> list[str] | None:
        made = self._captured(source, name, file)
        key, number = made.key + file, len(self._stored)
        request = Prepare(
            Lookup(made.key, made.function_key, (), SIGNATURE, made.locations), name, f"{file}:1", names=("x", "n")
        )
        info = EntryInfo(key, "", name, f"{file}:1", name, name, "", {}, {}, 0.0, 0, number, number, 0)
        rows = KeyComponents({"capture": made.key.encode()})
        self._stored[key] = Stored(info, rows, b"", msgspec.msgpack.encode(request), capture=key)
        self._captures[key] = made.payload
        found = explain(self, Why(key))
        assert found is not None
        return None if found.nearest is None else list(map(str, found.differences))

    def infos(self, prefix: str = "") -> list[EntryInfo]:
        return [stored.info for stored in self._stored.values()]

    def stored(self, key: str) -> Stored | None:
        return self._stored.get(key)

    def capture(self, stored: Stored) -> bytes:
        return self._captures[stored.key]


@pytest.fixture
def cache() -> Cache:
    from jitclient.capture.dump import capture

    def captured(source: str, name: str, file: str) -> Any:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(textwrap.dedent(source), file, "exec", dont_inherit=True), names)
        return capture(names[name])

    return Cache(captured)


STEP = """
    LR = 0.1
    def helper(x):
        if x:
            x = x + 1
        return [x * i for i in range(3)]
    def step(x, n):
        y = helper(x)
        z = lambda k: k + y
        return z(LR)
"""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("LR = 0.1", "LR = 0.2", "global LR: 0.1 -> 0.2"),
        ("x = x + 1", "x = x + 2", "helper helper: code changed (train.py:5)"),
        ("x * i", "x / i", "helper helper: code changed (train.py:6)"),
        ("k + y", "k - y", "code of step: changed (train.py:9)"),
        ("    y = helper(x)\n", "    y = helper(x)\n        y = y + 1\n", "code of step: changed (train.py:9)"),
        ("return z(LR)", "return z(LR), n", "code of step: changed (train.py:10)"),
        ("def step(x, n)", "def step(x, n=3)", "default n of step: new, 3"),
    ],
)
def test_an_edit_has_the_line_where_it_was_made(cache: Cache, old: str, new: str, text: str) -> None:
    assert old in STEP
    assert cache.add(STEP) is None
    assert cache.add(STEP.replace(old, new)) == [text]


def test_a_renamed_function_has_the_code_of_its_former_name(cache: Cache) -> None:
    cache.add(STEP)
    renamed = STEP.replace("def step", "def train_step")
    assert cache.add(renamed, "train_step") == ["same code as step (train.py:1)"]
    again = renamed.replace("train_step", "other").replace("LR = 0.1", "LR = 0.3")
    assert cache.add(again, "other") == ["same code as train_step (train.py:1)", "global LR: 0.1 -> 0.3"]


def test_the_nearest_relative_is_of_the_same_file(cache: Cache) -> None:
    cache.add(STEP.replace("LR = 0.1", "LR = 0.2"), file="/me/train.py")
    cache.add(STEP.replace("LR = 0.1", "LR = 0.3"), file="/you/train.py")
    cache.add(STEP.replace("LR = 0.1", "LR = 0.4"), file="/you/other.py")
    assert cache.add(STEP, file="/me/train.py") == ["global LR: 0.2 -> 0.1"]
    assert cache.add(STEP, file="/they/train.py") == []
    assert cache.add(STEP.replace("LR = 0.1", "LR = 0.5"), file="/they/another.py") is not None


def test_another_function_of_the_same_name_is_no_relative(cache: Cache) -> None:
    other = (
        "".join(f"    V{n} = {n}\n" for n in range(20))
        + "    def step(x, n): return "
        + " + ".join(f"V{n}" for n in range(20))
    )
    cache.add(STEP)
    assert cache.add(other, file="/me/train.py") is None
    assert cache.add(STEP.replace("step", "evaluate"), "evaluate", "/me/elsewhere.py") is None
