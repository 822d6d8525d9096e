"""What libraries of settings make, and what of it is of one process only: absl's flags, beartype's names and hashes,
what omegaconf (Hydra) has resolved, what wandb keeps of its run.
"""

import functools
import re
from collections import defaultdict
from types import CodeType
from typing import Any

_HOME_OF_FLAGS = "absl.flags._flagvalues"
_ID = re.compile(r"__beartype_object_\d+")


def is_flags(obj: Any) -> bool:
    """Whether an object is absl's FLAGS, or another such registry."""
    return type(obj).__module__ == _HOME_OF_FLAGS and type(obj).__name__ == "FlagValues"


def is_flag_holder(obj: Any) -> bool:
    """Whether an object is what `flags.DEFINE_*` gives, which reads one flag."""
    return type(obj).__module__ == _HOME_OF_FLAGS and type(obj).__name__ == "FlagHolder"


def lasting(code: CodeType) -> CodeType:
    """The same code with names that every process gives, and without the hash of a name that attrs puts into hashes."""
    if code.co_name == "__hash__" and code.co_filename.startswith("<attrs generated"):
        return code.replace(co_consts=tuple(0 if type(const) is int else const for const in code.co_consts))
    names = lasting_names(code)
    return code.replace(co_varnames=tuple(names.get(name, name) for name in code.co_varnames)) if names else code


def lasting_names(code: CodeType) -> dict[str, str]:
    """For each name of an argument that holds an id of beartype's, another one."""
    if not code.co_filename.startswith("<@beartype("):
        return {}
    found = [name for name in code.co_varnames if _ID.fullmatch(name)]
    return {name: f"__beartype_object_{number}" for number, name in enumerate(found)}


def is_settings(obj: Any) -> bool:
    """Whether an object is what beartype was configured with."""
    return type(obj).__name__ == "BeartypeConf" and type(obj).__module__.startswith("beartype.")


def made_again(settings: Any) -> Any:
    """A call that makes the same settings."""
    kind: Any = type(settings)
    return functools.partial(kind, **settings.kwargs)


def lasting_state(obj: Any, state: dict[str, Any]) -> dict[str, Any]:
    """The state of an object without what belongs to one run of a program. What is missing fails if it is used."""
    home = type(obj).__module__
    if home == "omegaconf.base" and "resolver_cache" in state:
        return {**state, "resolver_cache": defaultdict(dict)}
    if home == "wandb.sdk.wandb_config" and "_items" in state:
        return {"_items": {name: value for name, value in state["_items"].items() if name != "_wandb"}}
    return state
