"""Hooks of the interpreter that report which code starts to run on a thread.

`sys.monitoring`, where Python has it, reports each code object once and then costs nothing. Trace functions report each
call, so that a trace takes twice as long. Hooks that debuggers, profilers and coverage tools have installed are not
replaced.
"""

import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

from jitclient.capture.manifest.garbage import collects_garbage
from jitclient.core.compat import MONITORING

Started = Callable[[CodeType, dict[str, Any]], None]
"""A function that receives each code object that starts to run, with its globals, and some more than once."""


A_DEBUGGER = "a debugger"
"""First words of the reasons why a trace with a debugger in it is not observed."""


class Hook(Protocol):
    """An interpreter hook, shared by all observations that it serves."""

    def add(self, started: Started) -> str:
        """Report the code that runs on this thread to `started`. Return the reason if that is impossible, else ""."""

    def remove(self, started: Started) -> str:
        """Stop reporting to `started`. Return the reason if some code may not have been reported, else ""."""


_setting = threading.RLock()


def _after_fork() -> None:
    global _setting
    _setting = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def hook_of_thread() -> Hook:
    """Return the hook that serves this thread: each thread has its own trace function."""
    if MONITORING is not None:
        return _MONITORING
    if not hasattr(_of_thread, "hook"):
        _of_thread.hook = _TraceFunction()
    hook: Hook = _of_thread.hook
    return hook


class _TraceFunction:
    """Hook that is a trace function, or a profile function while a debugger has set a trace function."""

    def __init__(self) -> None:
        self._listeners: list[Started] = []
        # The keys are ids. The values keep the code alive, so that no other code can get the same id.
        self._reported: dict[int, CodeType] = {}
        self._is_profile = False
        self._failure = ""

    def add(self, started: Started) -> str:
        if not self._listeners and not self._install():
            return f"{A_DEBUGGER} and a profiler are active"
        # The new listener has received no code yet, so report all code again.
        self._reported = {}
        self._failure = ""
        self._listeners.append(started)
        return ""

    def _install(self) -> bool:
        self._is_profile = sys.gettrace() is not None
        if self._is_profile and sys.getprofile() is not None:
            return False
        self._set(self._on_start)
        return True

    def _set(self, function: Callable[..., None] | None) -> None:
        # Python 3.11 refuses one thread while another is in these functions.
        with _setting:
            (sys.setprofile if self._is_profile else sys.settrace)(function)

    def remove(self, started: Started) -> str:
        self._listeners.remove(started)
        installed = sys.getprofile() if self._is_profile else sys.gettrace()
        if installed != self._on_start:
            return f"{A_DEBUGGER} or a profiler was started or stopped during the trace"
        if not self._listeners:
            self._set(None)
            self._reported = {}
        return self._failure

    def _on_start(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # An error would be raised in the code that starts.
        try:
            if id(code) not in self._reported and event == "call" and not collects_garbage():
                self._reported[id(code)] = code
                for listener in self._listeners:
                    listener(code, frame.f_globals)
        except Exception as error:
            self._failure = _failure(error)


class _Monitoring:
    """Hook that is a tool of `sys.monitoring`, which receives the events of all threads."""

    # Python assigns no purpose to these tool ids.
    _IDS = (4, 3)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[int, list[Started]] = {}
        # By thread.
        self._failures: dict[int, str] = {}
        self._tool: int | None = None
        self._return_value: Any = None

    def add(self, started: Started) -> str:
        with self._lock:
            if self._tool is None:
                self._tool = next((each for each in self._IDS if MONITORING.get_tool(each) is None), None)
                if self._tool is None:
                    return "other tools use all free tool ids of sys.monitoring"
                MONITORING.use_tool_id(self._tool, "jitclient")
                MONITORING.register_callback(self._tool, MONITORING.events.PY_START, self._on_start)
                MONITORING.set_events(self._tool, MONITORING.events.PY_START)
            self._listeners.setdefault(threading.get_ident(), []).append(started)
            self._failures.pop(threading.get_ident(), None)
            self._choose_return_value()
            # The new listener has received no code yet, so report all code again.
            MONITORING.restart_events()
        return ""

    def remove(self, started: Started) -> str:
        thread = threading.get_ident()
        with self._lock:
            self._listeners[thread].remove(started)
            if not self._listeners[thread]:
                del self._listeners[thread]
            self._choose_return_value()
            if not self._listeners:
                MONITORING.set_events(self._tool, 0)
                MONITORING.register_callback(self._tool, MONITORING.events.PY_START, None)
                MONITORING.free_tool_id(self._tool)
                self._tool = None
        return self._failures.get(thread, "")

    def _choose_return_value(self) -> None:
        """Choose whether each code object is reported only once: not if several threads listen.

        An event that is disabled for a code object is disabled for all threads.
        """
        self._return_value = MONITORING.DISABLE if len(self._listeners) == 1 else None

    def _on_start(self, code: CodeType, offset: int) -> Any:
        listeners = self._listeners.get(threading.get_ident())
        # An error would be raised in the code that starts.
        try:
            # Keep the event enabled in these cases, because the listeners have not received this code.
            if listeners is None or collects_garbage():
                return None
            names = sys._getframe(1).f_globals
            for listener in listeners:
                listener(code, names)
        except Exception as error:
            self._failures[threading.get_ident()] = _failure(error)
        # Read this last, so that no thread can start to listen between the read and its effect.
        return self._return_value


def _failure(error: Exception) -> str:
    return f"a hook failed: {type(error).__name__}: {error}"


_MONITORING = _Monitoring()
_of_thread = threading.local()
