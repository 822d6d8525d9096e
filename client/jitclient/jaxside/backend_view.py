"""Stand-ins that show traces in this process the daemon's backend, for which the program is compiled.

User code branches on `jax.default_backend()` and on the platforms of `jax.devices()`, but this process's own jax
computes on the CPU. All public functions that report backends call one internal function of jax. Here it is replaced:
for a thread that is tracing, it returns a view of the daemon's backend. When jax itself calls it to compute something
immediately, it returns the real backend.
"""

import contextlib
import dataclasses
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jitclient.jaxside import internals
from jitclient.wire.messages import DeviceInfo

_here = threading.local()


@dataclasses.dataclass(frozen=True)
class DeviceView:
    """Stand-in for a device of the daemon."""

    id: int
    platform: str
    device_kind: str
    process_index: int = 0


class BackendView:
    """Stand-in for the daemon's backend."""

    def __init__(self, infos: Sequence[DeviceInfo]) -> None:
        self._devices = [DeviceView(n, info.platform, info.kind) for n, info in enumerate(infos)]
        self.platform = infos[0].platform

    def devices(self) -> list[DeviceView]:
        """Return views of all the daemon's devices."""
        return list(self._devices)

    local_devices = devices

    def device_count(self) -> int:
        """Return the number of devices."""
        return len(self._devices)

    local_device_count = device_count

    def process_index(self) -> int:
        """Return the index of the process, which is always 0."""
        return 0


@contextlib.contextmanager
def of(infos: Sequence[DeviceInfo]) -> Iterator[None]:
    """Show this thread the daemon's devices inside the `with` block, unless this process has the same platform."""
    import jax

    if not infos or infos[0].platform == jax.default_backend() or not _prepare():
        yield
        return
    _here.view = BackendView(infos)
    try:
        yield
    finally:
        _here.view = None


def own_devices(platform: str | None = None) -> list[Any]:
    """Return the devices of this process's own jax, even to a trace that sees the daemon's."""
    import jax

    view, _here.view = getattr(_here, "view", None), None
    try:
        return jax.devices(platform)
    finally:
        _here.view = view


@functools.cache
def _prepare() -> bool:
    """Install the stand-ins once. Return whether this version of jax has the functions to replace."""
    import jax

    questions = (jax.default_backend, jax.devices, jax.device_count, jax.local_device_count)
    if not internals.replace_get_backend(lambda real: _GetBackend(real, questions)):
        return False
    jax.local_devices = _local_devices(jax.local_devices)
    return True


class _GetBackend:
    """Replacement of jax's function that finds a backend."""

    def __init__(self, real: Any, questions: Iterable[Any]) -> None:
        self._real = real
        self._questions = {question.__code__ for question in questions}

    def __call__(self, platform: Any = None) -> Any:
        view = getattr(_here, "view", None)
        if view is None or platform not in (None, view.platform):
            return self._real(platform)
        question = sys._getframe(1)
        is_asked = question.f_code in self._questions
        is_default = question.f_code.co_name == "default_backend"
        return view if is_asked and (is_default or not _is_of_jax(question.f_back)) else self._real(platform)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _local_devices(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def local_devices(*args: Any, **kwargs: Any) -> Any:
        view = getattr(_here, "view", None)
        return real(*args, **kwargs) if view is None or args or kwargs else view.devices()

    return local_devices


def _is_of_jax(frame: Any) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__")).startswith(("jax.", "jaxlib."))
