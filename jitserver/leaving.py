"""Where a daemon leaves the sessions that the next one at its address takes back. Knows nothing of jax."""

import contextlib
import hashlib
from pathlib import Path

from jitclient.errors import SettingsError
from jitclient.wire.address import private_folder
from jitserver.cache import folder


def folder_of(address: str) -> Path:
    """The folder for the daemons at an address, made if need be.

    Raises:
        SettingsError: a folder belongs to somebody else.
        OSError: it cannot be made.
    """
    digest = hashlib.blake2b(address.encode(), digest_size=8).hexdigest()
    return private_folder(private_folder(folder.part() / "sessions") / digest)


def forget(address: str) -> None:
    """Ends the sessions that were left there, as far as there are any."""
    with contextlib.suppress(SettingsError, OSError):
        for path in folder_of(address).iterdir():
            path.unlink(missing_ok=True)
