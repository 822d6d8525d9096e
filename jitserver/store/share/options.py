"""Options of the lab's cache, from the environment of the daemon."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from jitclient.errors import SettingsError

MODES = ("readwrite", "read")
_MIN_KEY_BYTES = 16


@dataclasses.dataclass(frozen=True)
class LabOptions:
    """Where the lab's cache is, and what this machine may do there.

    Attributes:
        url: JITSERVER_SHARE: a folder as fsspec names it: `s3://lab/jit`, `file:///nfs/jit`.
        key: JITSERVER_SHARE_KEY, or the content of the file JITSERVER_SHARE_KEY_FILE: the secret of the project, with
            which all entries are signed.
        writes: JITSERVER_SHARE_MODE: `readwrite` or `read`.
    """

    url: str
    key: bytes = dataclasses.field(repr=False)
    writes: bool = True

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "LabOptions | None":
        """Return the options; None if no lab's cache is set.

        Raises:
            SettingsError: a value is missing or invalid; the message names the variable.
        """
        url = environment.get("JITSERVER_SHARE")
        if not url:
            return None
        if "://" not in url:
            raise SettingsError(
                f"JITSERVER_SHARE={url!r}: expected a URL, such as s3://bucket/folder or file:///folder"
            )
        mode = environment.get("JITSERVER_SHARE_MODE") or MODES[0]
        if mode not in MODES:
            raise SettingsError(f"JITSERVER_SHARE_MODE={mode!r}: expected {' or '.join(MODES)}")
        return cls(url.rstrip("/"), _key(environment), mode == MODES[0])


def _key(environment: Mapping[str, str]) -> bytes:
    given, file = environment.get("JITSERVER_SHARE_KEY"), environment.get("JITSERVER_SHARE_KEY_FILE")
    if given and file:
        raise SettingsError("JITSERVER_SHARE_KEY and JITSERVER_SHARE_KEY_FILE are both set: unset one of them")
    if file:
        try:
            if os.stat(file).st_mode & 0o007:
                raise SettingsError(f"JITSERVER_SHARE_KEY_FILE={file}: other users can use it. Run `chmod o= {file}`.")
            key = Path(file).read_bytes().strip()
        except OSError as error:
            raise SettingsError(f"JITSERVER_SHARE_KEY_FILE={file}: {error.strerror}") from error
    else:
        key = (given or "").encode(errors="surrogateescape").strip()
    if len(key) < _MIN_KEY_BYTES:
        raise SettingsError(
            f"JITSERVER_SHARE is set, and the key of the project has {len(key)} bytes, but needs {_MIN_KEY_BYTES}: set"
            " JITSERVER_SHARE_KEY, or JITSERVER_SHARE_KEY_FILE, to a secret such as `openssl rand -hex 32` prints"
        )
    return key
