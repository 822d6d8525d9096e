"""The shim that fails the Nth call of a kind: made from shim.c, and told through a page of shared memory."""

import errno
import mmap
import struct
import subprocess
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")

CALLS = {
    "open": errno.EMFILE,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "fsync": errno.EIO,
    "rename": errno.ENOSPC,
    "mmap": errno.ENOMEM,
    "ftruncate": errno.ENOSPC,
    "memfd_create": errno.EMFILE,
    "socket": errno.EMFILE,
    "connect": errno.ECONNREFUSED,
    "sendmsg": errno.EPIPE,
    "recvmsg": errno.ECONNRESET,
    "poll": errno.ENOMEM,
    "pthread_create": errno.EAGAIN,
}
"""The kinds of calls, which include their variants (`pread` for read, `send` for sendmsg), and how they fail."""

_LAYOUT = struct.Struct("iiq")


def build(folder: Path) -> Path:
    """Compiles the shim.

    Raises:
        RuntimeError: there is no compiler, or it fails.
    """
    library = folder / "shim.so"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    try:
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl", "-pthread"],
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        raise RuntimeError(f"the sweep needs a C compiler, and there is no {compiler}") from None
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{SOURCE} cannot be compiled: {error.stderr}") from None
    return library


class Control:
    """The calls that are to fail in a process with the shim."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def environment(self, library: Path | None) -> dict[str, str]:
        """Return the environment of a process under this control; without the shim, nothing fails."""
        preload = {} if library is None else {"LD_PRELOAD": str(library)}
        return {**preload, "FAULTS_CONTROL": str(self.path)}

    def arm(self, call: str, number: int) -> None:
        """Has the call of this number fail, counted from 1."""
        _LAYOUT.pack_into(self._page, 0, 0, CALLS[call], number)
        _LAYOUT.pack_into(self._page, 0, list(CALLS).index(call) + 1, CALLS[call], number)

    def disarm(self) -> bool:
        """Lets all calls be; returns whether one has failed."""
        _, _, left = _LAYOUT.unpack_from(self._page)
        _LAYOUT.pack_into(self._page, 0, 0, 0, 0)
        return left <= 0
