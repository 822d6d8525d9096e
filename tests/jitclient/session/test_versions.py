"""Versions that must agree between client and daemon, and the commands that mend a difference."""

import importlib.metadata

import pytest

from jitclient.errors import Incompatible
from jitclient.session import versions
from jitclient.wire.messages import PROTOCOL, Hello, Welcome
from jitclient.wire.ssh import SshAddress

FAR = SshAddress("host", "alice", 2222, "~/jit")


def hello(protocol: int = PROTOCOL, python: str = "3.11.7", jax: str = "1.0") -> Hello:
    return Hello(protocol, "0.1.0", python, {"jax": jax})


WELCOME = Welcome(PROTOCOL, "0.1.0", "3.11.2", {"jax": "1.0", "jaxlib": "1.0"}, "cpu", 7, b"", False, 1, 0)


def test_what_agrees() -> None:
    versions.check(hello(), WELCOME)
    versions.check(hello(), WELCOME, FAR)
    versions.check(Hello(PROTOCOL, "0.1.0", "3.11.7", {}), WELCOME)  # the client has not loaded jax


@pytest.mark.parametrize(
    ("differs", "mends"),
    [
        (hello(jax="2.0"), "`ssh -p 2222 alice@host jit/bin/pip install jax==2.0`"),
        (hello(protocol=0, jax="2.0"), "`ssh -p 2222 alice@host jit/bin/pip install jitserver==0.1.0 jax==2.0`"),
        (hello(python="3.12.1"), "Make an environment with Python 3.12 on the daemon's machine"),
    ],
)
def test_each_difference_is_named_with_what_mends_it(differs: Hello, mends: str) -> None:
    with pytest.raises(Incompatible, match="restart"):
        versions.check(differs, WELCOME)
    with pytest.raises(Incompatible) as caught:
        versions.check(differs, WELCOME, FAR)
    assert mends in str(caught.value)
    assert "(pid 7) have different versions: " in str(caught.value)


def test_packages_on_another_machine() -> None:
    numpy, click = map(importlib.metadata.version, ("numpy", "click"))
    versions.check_packages(("numpy",), {"numpy": numpy}, FAR)
    versions.check_packages(("no_such_import",), {}, FAR)
    with pytest.raises(Incompatible) as caught:
        versions.check_packages(("click", "numpy"), {"numpy": "0.1"}, FAR)
    assert f"numpy is {numpy} here and 0.1 there" in str(caught.value)
    assert f"click is {click} here and not installed there" in str(caught.value)
    assert str(caught.value).endswith(f"`ssh -p 2222 alice@host jit/bin/pip install click=={click} numpy=={numpy}`.")
