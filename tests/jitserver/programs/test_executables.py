"""Serialized executables, and compilations by their text, on storage that hangs or fails."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import pytest

from jitclient.jaxside import tree
from jitclient.jaxside.compilation_cache import CompilationCache
from jitclient.wire.messages import Signature, Spec, TracedProgram
from jitserver.programs import executables, program


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


class Lab:
    """A lab's cache that has some compilations, and what happens to them; it uploads at once."""

    def __init__(self, has: dict[str, bytes]) -> None:
        self.has, self.done = has, list[tuple[str, str]]()
        self.share = self.uploads = self

    def get_compilation(self, text_key: str) -> tuple[bytes, float] | None:
        self.done.append(("get", text_key))
        return (self.has[text_key], 7.0) if text_key in self.has else None

    def put_compilation(self, text_key: str, executable: bytes, seconds: float) -> None:
        self.done.append(("put", text_key))

    def add(self, key: str, upload: Callable[[], None]) -> None:
        upload()


def test_long_programs_ask_the_lab_and_others_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown = map(executables._of_machine, ("known", "unknown"))
    lab = Lab({known: b"executable of another machine"})
    cache = executables._Compilations(tmp_path, 0.0, 1 << 30, lab)  # type: ignore[arg-type]
    monkeypatch.setattr(executables, "_compilations", cache)
    with executables.compiling("a short text"):
        assert cache.get("known") is None
        cache.put("short", b"executable", 1.0)
    assert lab.done == []
    with executables.compiling("a long text" * 10_000):
        assert cache.get("known") == (b"executable of another machine", 7.0)
        assert cache.get("unknown") is None
        cache.put("unknown", b"executable", 1.0)
    assert lab.done == [("get", known), ("get", unknown), ("put", unknown)]
    # This machine keeps both.
    assert cache.get("known") == (b"executable of another machine", 7.0)
    assert cache.get("unknown") == (b"executable", 1.0)
    assert len(lab.done) == 3


def test_each_program_is_compiled_where_the_lab_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, compiled_in = list[str](), list[bool]()

    @contextlib.contextmanager
    def compiling(text: str) -> Iterator[None]:
        texts.append(text)
        before = compiled_in.copy()
        yield
        assert compiled_in == [*before, True]

    real = jax.stages.Lowered.compile

    def compile_in(self: Any, *args: Any, **named: Any) -> Any:
        compiled_in.append(True)
        return real(self, *args, **named)

    monkeypatch.setattr(executables, "compiling", compiling)
    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_in)
    spec = Spec((3,), "float32")
    exported = jax.export.export(jax.jit(lambda x: [x * 2]))(jax.ShapeDtypeStruct((3,), "float32"))
    built = program.from_client(
        bytes(exported.serialize()),
        TracedProgram("key", (spec,), tree.UNKNOWN),
        Signature(None, (spec,), (), (), (), ()),
        "double",
    )
    (text,) = texts
    assert "stablehlo.multiply" in text
    assert built.run(np.arange(3, dtype=np.float32))[0].tolist() == [0.0, 2.0, 4.0]


def test_a_loaded_executable_runs_on_its_devices_in_their_order(run_script: Callable[..., Any]) -> None:
    program = """
        import json, jax, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from jitserver.programs import executables

        devices, x, right = jax.devices(), np.arange(8, dtype=np.float32), []
        for order in (devices, devices[::-1], devices[4:] + devices[:4]):
            parts = NamedSharding(Mesh(np.array(order), ("d",)), PartitionSpec("d"))
            step = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, parts)).lower(x).compile()
            data = executables.to_bytes(step)
            found = executables.from_bytes(data)(x)
            where = [shard.device for shard in sorted(found.addressable_shards, key=lambda shard: shard.index)]
            right.append((np.asarray(found) == x * 2).all().item() and where == order)
        print(json.dumps(right))
    """
    assert run_script(program, env={"JAX_NUM_CPU_DEVICES": "8"}) == [True] * 3
