"""A lab's cache in memory, and programs for it."""

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from jitclient.wire.messages import Lookup, Prepare, Signature
from jitserver.store.entry import KeyComponents, Stored
from jitserver.store.share.options import LabOptions
from jitserver.store.share.share import Share
from jitserver.store.share.storage import Storage

KEY = b"a secret of the project"


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def member(url: str) -> Callable[..., Share]:
    """A machine of the lab, whose options may differ."""

    def member(**more: Any) -> Share:
        return Share(Storage(LabOptions(**{"url": url, "key": KEY, **more})))

    return member


@pytest.fixture
def program(stored: Callable[..., Any]) -> Callable[..., Stored]:
    """A program on the disk of a member, which took 2 s to make."""

    def program(key: str, names: tuple[str, ...] = (), base: str = "", seconds: float = 2.0) -> Stored:
        made: Stored = stored(key, seconds=seconds, names=names, base=base or key)
        signature = Signature(b"tree", (), (), (), (), ())
        lookup = Lookup("capture", "function", (), signature, locations=b"/home/me/train.py", manifests=())
        request = Prepare(lookup, "f", "/home/me/train.py:1", inputs=(("TOKEN", "the value of a variable", b""),))
        rows = {"capture": (base or key).encode(), "machine": b"this", "manifest": ",".join(names).encode()}
        return Stored(made.info, KeyComponents(rows), made.facts, msgspec.msgpack.encode(request))

    return program
