"""Which objects are absl's flags."""

from typing import Any

_HOME = "absl.flags._flagvalues"


def is_flags(obj: Any) -> bool:
    """Whether an object is absl's FLAGS, or another such registry."""
    return type(obj).__module__ == _HOME and type(obj).__name__ == "FlagValues"


def is_flag_holder(obj: Any) -> bool:
    """Whether an object is what `flags.DEFINE_*` gives, which reads one flag."""
    return type(obj).__module__ == _HOME and type(obj).__name__ == "FlagHolder"
