"""Settings of a client: one frozen object made from JITSERVER_* environment variables.

The variables of the commands' options are click's: see `jitserver/cli/__init__.py`.
"""

import functools
import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

from jitclient.errors import SettingsError

BOOLEANS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
"""Values of environment variables that mean true and false, as in JAX's settings."""

_PRINTED_REPORTS = ("text", "json")
_SUFFIXES_OF_REPORTS = (".html", ".json")


class Settings(NamedTuple):
    """User settings from the environment.

    Attributes:
        address: JITSERVER_ADDRESS: address of the daemon (default: the user's daemon, then the system's).
        autostart: JITSERVER_AUTOSTART: whether a client starts a daemon if none answers (default: yes).
        fallback: JITSERVER_FALLBACK: `local`: a call that the daemon cannot run is run with jax in this process, after
            one warning; `error`: the typed error is raised instead.
        verify: JITSERVER_VERIFY: `new`: each new program is compared with a trace in this process; `always`: cached
            programs are compared, too, and a stale one is an error; `off`: the daemon's trace is trusted.
        client_device: JITSERVER_CLIENT_DEVICE: `cpu`: jax itself computes on the CPU in a client, and leaves the
            accelerator to the daemon; `keep`: jax is not changed.
        client_cache: JITSERVER_CLIENT_CACHE: whether the compilations of jax itself in a client are kept for later
            processes (default: yes).
        cache_dir: JITSERVER_CACHE_DIR: directory of the program cache (default: `jitserver` in the user's cache
            directory).
        timeout: JITSERVER_TIMEOUT: seconds without a sign of life after which a daemon counts as hanging; a working
            daemon sends a sign every second (default: 60).
        report: JITSERVER_REPORT: `lines`: a line on stderr for each program at its first use; `text` or `json`, or a
            file whose name ends in .html or .json: a report at the exit; `off`: nothing (default: on a terminal, lines
            about what takes long, and one at the exit).
    """

    address: str | None = None
    autostart: bool = True
    fallback: Literal["local", "error"] = "local"
    verify: Literal["off", "new", "always"] = "new"
    client_device: Literal["cpu", "keep"] = "cpu"
    client_cache: bool = True
    cache_dir: str | None = None
    timeout: float = 60.0
    report: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings from environment variables.

        Raises:
            SettingsError: a value is invalid; the message names the variable and its valid values.
        """
        return cls(
            address=environment.get("JITSERVER_ADDRESS") or None,
            autostart=_boolean(environment, "JITSERVER_AUTOSTART"),
            fallback=_one_of(environment, "JITSERVER_FALLBACK", "local", "error"),
            verify=_one_of(environment, "JITSERVER_VERIFY", "new", "always", "off"),
            client_device=_one_of(environment, "JITSERVER_CLIENT_DEVICE", "cpu", "keep"),
            client_cache=_boolean(environment, "JITSERVER_CLIENT_CACHE"),
            cache_dir=_absolute(environment, "JITSERVER_CACHE_DIR"),
            timeout=_seconds(environment, "JITSERVER_TIMEOUT", "60"),
            report=_report(environment, "JITSERVER_REPORT"),
        )


@functools.cache
def settings() -> Settings:
    """Return the settings of this process, read on first use."""
    return Settings.from_environment()


_given_report = ""


def report() -> str:
    """Return the form of this program's report: that of its command line, or else that of the settings."""
    return _given_report or settings().report


def use_report(form: str) -> None:
    """Use the form of report that the command line of the program gives; if empty, the settings decide."""
    global _given_report
    _given_report = form


def report_form(value: str) -> str:
    """Return the form of a report that a value names, or the path of the file to write.

    Raises:
        ValueError: the value is neither.
    """
    if value in ("off", "lines") or is_report_at_exit(value):
        return value
    raise ValueError(f"{value!r}: expected 'off', 'lines', 'text', 'json', or a file whose name ends in .html or .json")


def is_report_at_exit(form: str) -> bool:
    """Return whether a report is made at the exit: it is printed on stderr, or written to a file."""
    return form in _PRINTED_REPORTS or is_report_file(form)


def is_report_file(form: str) -> bool:
    """Return whether the report is written to a file."""
    return os.path.splitext(form)[1] in _SUFFIXES_OF_REPORTS


def _boolean(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "1")
    if text.lower() not in BOOLEANS:
        raise SettingsError(f"{name}={text!r}: expected 1 or 0")
    return BOOLEANS[text.lower()]


def _seconds(environment: Mapping[str, str], name: str, default: str) -> float:
    text = environment.get(name, default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise SettingsError(f"{name}={text!r}: expected a number of seconds")
    return seconds


def _report(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    try:
        return report_form(value) if value else ""
    except ValueError as error:
        raise SettingsError(f"{name}={error}") from None


def _absolute(environment: Mapping[str, str], name: str) -> str | None:
    text = environment.get(name) or None
    if text is not None and not os.path.isabs(text):
        raise SettingsError(f"{name}={text!r}: expected an absolute path")
    return text


def _one_of(environment: Mapping[str, str], name: str, default: str, *others: str) -> Any:
    text = environment.get(name, default)
    if text not in (default, *others):
        raise SettingsError(f"{name}={text!r}: expected {' or '.join(map(repr, (default, *others)))}")
    return text
