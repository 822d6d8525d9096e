"""What captured code sees in place of the world: its own builtins, imports and modules.

Nothing here is a security boundary: a capture is trusted code. It keeps user modules out of
`sys.modules`, and makes a read of an ambient input an error at the moment it happens.
"""

import builtins
import types
from typing import Any

from . import captured
from .ambient import message_of
from .private_imports import PrivateImports
from .traps import Trap


class Sandbox:
    """The builtins and the user modules of one load."""

    def __init__(self) -> None:
        self.imports = PrivateImports()
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self.imports.import_}
        for name in ("open", "input"):
            self.builtins[name] = Trap(True, message_of(name))

    def new_module(self) -> types.ModuleType:
        """An empty module that only this load knows."""
        module = types.ModuleType(captured.__name__)
        module.__dict__["__builtins__"] = self.builtins
        return module
