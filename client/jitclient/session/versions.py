"""Versions that client and daemon must share, and the command that corrects a difference."""

import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jitclient.errors import Incompatible
from jitclient.wire.messages import Hello, Welcome

if TYPE_CHECKING:
    from jitclient.wire.ssh import SshAddress

MUST_AGREE = ("jax", "jaxlib")
"""Packages that must have the daemon's version if the client has loaded them."""


def check(hello: Hello, welcome: Welcome, remote_address: "SshAddress | None" = None) -> None:
    """Compare the versions of both sides of a handshake.

    Args:
        hello: the client's message, with its versions.
        welcome: the daemon's message, with its versions.
        remote_address: address of the daemon if it is on another machine.

    Raises:
        Incompatible: the versions differ; the message names both, and the command that corrects the difference.
    """
    ours = {"protocol": str(hello.protocol), "Python": _minor(hello.python), **hello.loaded}
    theirs = {"protocol": str(welcome.protocol), "Python": _minor(welcome.python), **welcome.packages}
    differ = [name for name, version in ours.items() if theirs.get(name, version) != version]
    if not differ:
        return
    differences = ", ".join(f"{name} is {ours[name]} here and {theirs[name]} there" for name in differ)
    if remote_address is None:
        remedy = "Run `jitserver restart`"
    elif "Python" in differ:
        remedy = f"Make an environment with Python {ours['Python']} on the daemon's machine, and name it in the address"
    else:
        wanted = {name: ours[name] for name in differ if name != "protocol"}
        remedy = _install(
            wanted if "protocol" not in differ else {"jitserver": hello.version, **wanted}, remote_address
        )
    raise Incompatible.with_daemon(
        f"this program and the daemon (pid {welcome.pid}) have different versions: {differences}. {remedy}."
    )


def check_packages(names: Iterable[str], there: Mapping[str, str], remote_address: "SshAddress") -> None:
    """Compare the packages that a function uses, by import name, with those of another machine.

    Raises:
        Incompatible: the packages differ; the message names both, and the command that corrects the difference.
    """
    here = {name: version for imported in names for name, version in _distributions(imported)}
    differ = {name: version for name, version in here.items() if there.get(name) != version}
    if differ:
        differences = ", ".join(
            f"{name} is {version} here and {there.get(name, 'not installed')} there" for name, version in differ.items()
        )
        raise Incompatible(
            f"the packages of this function have different versions: {differences}. {_install(differ, remote_address)}."
        )


def _install(versions: Mapping[str, str], remote_address: "SshAddress") -> str:
    return (
        f"Run `{remote_address.shown('pip', 'install', *(f'{name}=={version}' for name, version in versions.items()))}`"
    )


@functools.cache
def _distributions(imported: str) -> tuple[tuple[str, str], ...]:
    """Return name and version of the distributions that provide an import."""
    from importlib import metadata  # takes 20 ms to import

    names = sorted(set(_providers().get(imported, ())))
    return tuple((name, metadata.version(name)) for name in names)


@functools.cache
def _providers() -> Mapping[str, list[str]]:
    from importlib import metadata

    return metadata.packages_distributions()


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
