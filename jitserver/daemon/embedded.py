"""A daemon of one's own for as long as a block runs: for tests, and for programs that bring their daemon along."""

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

_STOP_SECONDS = 60.0  # the daemon gives running calls 30


@dataclasses.dataclass(frozen=True)
class RunningDaemon:
    """A daemon that `run_daemon` started.

    Attributes:
        address: where it listens, as `jitclient.connect` and JITSERVER_ADDRESS take it.
        log: the file that it writes its log to; it exists as long as the block runs.
        process: its process.
    """

    address: str
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


@contextlib.contextmanager
def run_daemon(
    address: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RunningDaemon]:
    """Runs a daemon in a process of its own until the block ends. This process imports no jax for it.

    Args:
        address: where it listens, `unix:PATH`; by default in a private temporary folder.
        cache_dir: the folder of its cache; by default a temporary one, which goes with the daemon.
        options: more options of `jitserver serve`.
        env: variables that it has beside those of this process.

    Yields:
        The daemon, once it answers.

    Raises:
        SettingsError: `address` names none.
        AddressTaken: another daemon serves there.
        DaemonUnavailable: it does not come up; the message ends with its log.
        DaemonSilent: it did not end at the end of the block, and was killed.

    Example:
        >>> with jitserver.run_daemon() as daemon:
        ...     jitclient.connect(daemon.address)
        ...     step(params, x)
    """
    with tempfile.TemporaryDirectory(prefix="jitserver-", ignore_cleanup_errors=True) as folder:
        where = Address.parse(address or f"unix:{folder}/daemon.sock")
        log, cache = Path(folder, "log"), os.path.abspath(cache_dir or Path(folder, "cache"))
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [*launch.command(where), *options],
                env={**launch.daemon_environment(), "JITSERVER_CACHE_DIR": cache, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            with launch.wait_for(where, lambda: _end_of(process), log) as connection:
                if peer(connection).pid not in (process.pid, 0):  # which only Linux tells
                    raise AddressTaken(f"another daemon serves at {where} already")
            yield RunningDaemon(str(where), log, process)
        finally:
            _stop(process)


def _end_of(process: subprocess.Popen[bytes]) -> str:
    return "" if process.poll() is None else f"status {process.returncode}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise DaemonSilent(f"the daemon (pid {process.pid}) did not end in {_STOP_SECONDS:.0f} s") from None
    finally:
        process.kill()  # nothing, where it has ended
        process.wait()
