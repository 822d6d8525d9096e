"""The lab's cache of a daemon: what it asks, and the thread that uploads."""

import logging

from jitclient.errors import SettingsError
from jitserver.store.share.options import LabOptions
from jitserver.store.share.share import Share
from jitserver.store.share.storage import Storage
from jitserver.store.write_behind import Writer

log = logging.getLogger(__name__)


class Lab:
    """A daemon's part in a lab's cache.

    Attributes:
        share: the programs by call key, and the compilations by the program's text.
        uploads: writes to the storage, which may be slow, so no write to the disk waits for it.
    """

    def __init__(self, options: LabOptions) -> None:
        self.share = Share(Storage(options))
        self.uploads = Writer(lambda: 0)
        self.uploads.add("", self.share.storage.connect)


def joined() -> Lab | None:
    """Return the lab's cache, if one is set. What is wrong with its settings turns it off, and never the daemon."""
    try:
        options = LabOptions.from_environment()
    except SettingsError as error:
        log.warning("lab's cache: disabled (%s)", error)
        return None
    return None if options is None else Lab(options)
