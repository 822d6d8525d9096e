"""One cached program with what people want to know of it."""

import dataclasses
from typing import Any

from jitclient.wire.messages import EntryInfo
from jitserver.cache.makeup import Makeup


@dataclasses.dataclass
class Entry:
    """A program under its call key. The program itself is the engine's business."""

    info: EntryInfo
    program: Any
    makeup: Makeup

    @property
    def key(self) -> str:
        """The call key."""
        return self.info.key
