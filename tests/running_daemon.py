"""A daemon of its own process for the duration of a `with` block, for tests and for the programs that they write."""

import contextlib
import dataclasses
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jitclient.errors import AddressTaken, DaemonSilent
from jitclient.session import launch
from jitclient.wire.address import Address, peer

_STOP_SECONDS = 60.0  # the daemon allows running calls 30 s to finish


@dataclasses.dataclass(frozen=True)
class RunningDaemon:
    """A daemon that `run_daemon` started; its log exists until the block ends."""

    address: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        return self.process.pid


@contextlib.contextmanager
def run_daemon(
    address: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RunningDaemon]:
    """Runs a daemon, which answers when this begins and has ended when this ends.

    The cache is in `cache_dir`, or in a folder that is deleted with the daemon; `options` are further ones of
    `jitserver serve`, and `env` has further variables.
    """
    with tempfile.TemporaryDirectory(prefix="jitserver-", ignore_cleanup_errors=True) as directory:
        where = Address.parse(address or f"unix:{directory}/daemon.sock")
        log, cache = Path(directory, "log"), os.path.abspath(cache_dir or Path(directory, "cache"))
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*launch.command(where), *options],
                env={**launch.daemon_environment(), "JITSERVER_CACHE_DIR": cache, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            with launch.wait_for(where, lambda: _exit_status_of(process), log) as connection:
                if peer(connection).pid not in (process.pid, 0):  # pid is 0 on systems other than Linux
                    raise AddressTaken(f"another daemon serves at {where} already")
            yield RunningDaemon(str(where), log, process)
        finally:
            _stop(process)


def _exit_status_of(process: subprocess.Popen[bytes]) -> str:
    return "" if process.poll() is None else f"status {process.returncode}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise DaemonSilent(f"the daemon (pid {process.pid}) did not exit within {_STOP_SECONDS:.0f} s") from None
    finally:
        process.kill()  # does nothing if the process has exited
        process.wait()
