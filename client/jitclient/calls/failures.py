"""Failures on the way to a program, none of which reaches the user's program."""

import contextlib
from collections.abc import Iterator

from jitclient.core.settings import settings
from jitclient.errors import ArrayLost, CaptureError, CrashesDaemon, DaemonError, ProgramsDiffer, SessionBusy
from jitclient.session.exceptions import TraceFailed


class InputsChangedError(Exception):
    """Change of a declared input during the trace."""


class CaptureNeededError(Exception):
    """Failure to do without the capture that was abandoned because it took too long."""


class TracesDifferError(CaptureError):
    """Own trace that differs, or may differ, from the daemon's, so that each process must trace the function."""


class OwnFailure(CaptureError):  # noqa: N818
    """Failure of jitserver itself, or mistake of the user's, which JAX reports in its own words."""


@contextlib.contextmanager
def failures_to_capture_error() -> Iterator[None]:
    """Turn every failure of jitserver into a CaptureError, which leads to the own trace or to a run in this process.

    All code except the trace of the user's function runs inside. Refusals and the loss of the daemon pass through.
    """
    try:
        yield
    except (CaptureError, DaemonError, SessionBusy, ArrayLost, ProgramsDiffer, TraceFailed, InputsChangedError):
        raise
    except CrashesDaemon as error:
        if settings().fallback == "error":
            raise
        raise CaptureError(str(error)) from error
    except Exception as error:
        if settings().fallback == "error" and type(error).__name__ == "JaxRuntimeError":
            raise
        what = f"{type(error).__name__}: {error}"
        raise OwnFailure(f"jitserver failed ({what:.300}). Please report this") from error
