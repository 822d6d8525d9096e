"""The versions in this environment, and those that the daemon has loaded."""

import importlib.metadata
import platform

from jitclient.version import __version__
from jitclient.wire.address import Address
from jitserver.doctor.finding import DaemonState, Finding

_MUST_AGREE = ("Python", "jax", "jaxlib")


def versions(state: DaemonState) -> Finding:
    """Compares both: a daemon refuses clients that have loaded another version of jax."""
    here = {"jitserver": __version__, "Python": platform.python_version()}
    here |= {name: _installed(name) for name in ("jax", "jaxlib")}
    says = ", ".join(f"{name} {version or 'not installed'}" for name, version in here.items())
    status = state.status
    if status is None:
        if here["jax"] and here["jaxlib"]:
            return Finding("versions", "ok", says)
        return Finding("versions", "problem", says, "a daemon needs jax: pip install 'jitserver[server]', or [cuda13]")
    there = {"jitserver": status.version, "Python": status.python, **status.packages}
    is_far = not isinstance(state.address, Address)
    differ = [name for name, version in here.items() if version and there.get(name) != version]
    differ = [name for name in differ if not (is_far and _agree(name, here[name], there.get(name, "")))]
    if not differ:
        return Finding("versions", "ok", says)
    says += "; the daemon has " + ", ".join(f"{name} {there.get(name)}" for name in differ)
    matters = any(name in _MUST_AGREE and not _agree(name, here[name], there.get(name, "")) for name in differ)
    do = "install the versions of this machine there" if is_far else "jitserver restart"
    return Finding("versions", "problem" if matters else "warning", says, do)


def _agree(name: str, here: str, there: str) -> bool:
    if name == "Python":
        return here.split(".")[:2] == there.split(".")[:2]
    return here == there


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
