"""File of `--report=FILE`, which is replaced as a whole."""

import contextlib
import os
import tempfile
from collections.abc import Collection

from jitclient.api import chrome_trace, run_page
from jitclient.api.report import report_of
from jitclient.api.run_record import RunRecord, record_of
from jitclient.calls.usage import usage
from jitclient.core.notices import print_notice
from jitclient.core.spans import Timeline
from jitclient.jaxside import compilation_cache
from jitclient.jaxside.compile_events import compile_events
from jitclient.wire import labels


def write_report(
    path: str,
    line: Timeline,
    name: str,
    packages: Collection[str],
    preloaded: tuple[int, float] | None,
    why_fresh: str,
) -> None:
    """Write the report of this run, and print a line which says where it is, or why it could not be written.

    Args:
        path: absolute path of the file.
        line: time line of the run.
        name: name of the program.
        packages: the installed packages whose jits run on the daemon.
        preloaded: how many modules a helper has imported, and the seconds that this took; None without a helper.
        why_fresh: why a run has no helper; empty if it has one, or is not `jitserver run`.
    """
    report = report_of(usage, compile_events, packages, preloaded, why_fresh, compilation_cache.made_in_each_run())
    try:
        record = record_of(line, name, report, compilation_cache.own() is not None)
        _replace(path, encoded(record, path))
    except OSError as error:
        print_notice(f"the report {path} was not written ({error.strerror or error}). Name a file that you may write.")
    # The program has ended: a mistake of ours must not look like one of the program.
    except Exception as error:
        print_notice(f"the report {path} was not written ({type(error).__name__}: {error}). Please report this.")
    else:
        saved = f"{labels.seconds(max(0.0, report.saved_seconds))} saved"
        print_notice(f"{saved}, {record.found} found, {record.made} made; report: {path}")


def encoded(record: RunRecord, path: str) -> bytes:
    """Return the content of the file, by the suffix of its name: a page, or Chrome's trace format."""
    return run_page.encoded(record) if path.endswith(".html") else chrome_trace.encoded(record)


def _replace(path: str, content: bytes) -> None:
    """Write a file beside the path and move it there, with the permissions of a new file."""
    if os.path.isdir(path):
        raise IsADirectoryError(None, "it is a directory")
    folder, name = os.path.split(path)
    fd, temporary = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)
    try:
        with open(fd, "wb") as file:
            file.write(content)
        umask = os.umask(0o077)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
