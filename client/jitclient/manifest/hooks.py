"""The interpreter's hooks that report which code begins to run on a thread.

Python 3.12 and later have `sys.monitoring`, which reports each code object once and costs nothing afterwards. Earlier
versions have trace functions, which hear of each call: a trace takes twice as long. Debuggers, profilers and tools
for coverage keep the hooks that they have.
"""

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from jitclient.manifest.garbage import is_collected

Started = Callable[[CodeType, dict[str, Any]], None]
"""Hears of each code object that begins to run, with its globals; of some more than once."""


class Hook(Protocol):
    """One of the interpreter's hooks, shared by all observations that it serves."""

    def add(self, started: Started) -> str:
        """Report to `started` what runs on this thread. Returns why that is not possible, or ""."""

    def remove(self, started: Started) -> str:
        """Report no longer. Returns why not everything may have been reported, or ""."""


def hook_of_thread() -> Hook:
    """The hook that serves this thread: in Python 3.11, each thread has one of its own."""
    if sys.version_info >= (3, 12):
        return _MONITORING
    if not hasattr(_of_thread, "hook"):
        _of_thread.hook = _TraceFunction()
    hook: Hook = _of_thread.hook
    return hook


class _TraceFunction:
    """A trace function, or a profile function while a debugger has the former."""

    def __init__(self) -> None:
        self._listeners: list[Started] = []
        self._heard: dict[int, CodeType] = {}  # keeps the code alive, so that no other comes to have its id
        self._is_profile = False
        self._failure = ""

    def add(self, started: Started) -> str:
        if not self._listeners and not self._install():
            return "a debugger and a profiler are active"
        self._heard = {}  # a new listener has heard of nothing
        self._failure = ""
        self._listeners.append(started)
        return ""

    def _install(self) -> bool:
        self._is_profile = sys.gettrace() is not None
        if self._is_profile and sys.getprofile() is not None:
            return False
        (sys.setprofile if self._is_profile else sys.settrace)(self._hear)
        return True

    def remove(self, started: Started) -> str:
        self._listeners.remove(started)
        installed = sys.getprofile() if self._is_profile else sys.gettrace()
        if installed != self._hear:
            return "a debugger or a profiler was started or stopped during the trace"
        if not self._listeners:
            (sys.setprofile if self._is_profile else sys.settrace)(None)
            self._heard = {}
        return self._failure

    def _hear(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        try:
            if id(code) not in self._heard and event == "call" and not is_collected():
                self._heard[id(code)] = code
                for listener in self._listeners:
                    listener(code, frame.f_globals)
        except Exception as error:  # it would be raised by the code that begins
            self._failure = _failed(error)


class _Monitoring:
    """A tool of `sys.monitoring`, which hears of all threads."""

    _IDS = (4, 3)  # those to which Python gives no purpose

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, list[Started]] = {}
        self._failures: dict[int, str] = {}  # by thread
        self._tool: int | None = None
        self._answer: Any = None

    def add(self, started: Started) -> str:
        monitoring = _monitoring()
        with self._lock:
            if self._tool is None:
                self._tool = next((each for each in self._IDS if monitoring.get_tool(each) is None), None)
                if self._tool is None:
                    return "other tools have taken all of sys.monitoring"
                monitoring.use_tool_id(self._tool, "jitclient")
                monitoring.register_callback(self._tool, monitoring.events.PY_START, self._hear)
                monitoring.set_events(self._tool, monitoring.events.PY_START)
            self._listeners.setdefault(threading.get_ident(), []).append(started)
            self._failures.pop(threading.get_ident(), None)
            self._choose_answer()
            monitoring.restart_events()  # a new listener has heard of nothing
        return ""

    def remove(self, started: Started) -> str:
        monitoring, thread = _monitoring(), threading.get_ident()
        with self._lock:
            self._listeners[thread].remove(started)
            if not self._listeners[thread]:
                del self._listeners[thread]
            self._choose_answer()
            if not self._listeners:
                monitoring.set_events(self._tool, 0)
                monitoring.register_callback(self._tool, monitoring.events.PY_START, None)
                monitoring.free_tool_id(self._tool)
                self._tool = None
        return self._failures.get(thread, "")

    def _choose_answer(self) -> None:
        """Have code reported once, unless several threads listen: what is disabled is so for all of them."""
        self._answer = _monitoring().DISABLE if len(self._listeners) == 1 else None

    def _hear(self, code: CodeType, offset: int) -> Any:
        listeners = self._listeners.get(threading.get_ident())
        try:
            if listeners is None or is_collected():  # who listens has not heard of this code
                return None
            names = sys._getframe(1).f_globals
            for listener in listeners:
                listener(code, names)
        except Exception as error:  # it would be raised by the code that begins
            self._failures[threading.get_ident()] = _failed(error)
        return self._answer  # read last: no thread can begin to listen between this and its effect


def _failed(error: Exception) -> str:
    return f"a hook failed: {type(error).__name__}: {error}"


def _monitoring() -> Any:
    return getattr(sys, "monitoring")  # noqa: B009  (mypy checks for Python 3.11, which has none)


_MONITORING = _Monitoring()
_of_thread = threading.local()
