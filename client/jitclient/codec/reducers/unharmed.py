"""What an object shares with its copy, as it was before the copy was made."""

from collections.abc import Iterable
from types import FunctionType, ModuleType, TracebackType
from typing import Any, Self

from jitclient.codec.plain import ATOMS
from jitclient.codec.reducers.attributes import dict_of
from jitclient.codec.user_code.names import MISSING
from jitclient.errors import CaptureError

_MOST = 5_000  # of an object's own, or it costs more than it is worth
_DEEPEST = 2  # objects in objects: a copy is told to its children, hardly to theirs
_INERT = (type, FunctionType, ModuleType)


class Unharmed:
    """Puts back what code changes meanwhile in containers, objects, classes and namespaces that it can reach.

    That is what `roots` hold, down to a depth, and of what `owners` hold (classes and namespaces) only containers.
    `size` is how much that is; beyond `room`, it is a CaptureError.
    """

    def __init__(self, roots: Iterable[Any], owners: Iterable[Any], room: int) -> None:
        self.size = 0
        self._room = min(room, _MOST)
        self._was: list[tuple[Any, Any]] = []
        self._reach(roots)
        for owner in owners:
            self._note(owner)
            for held in _content(owner).values():
                if type(held) in _CONTAINERS:
                    self._note(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for held, was in self._was:
            if not _is_as_it_was(held, was):
                _put_back(held, was)

    def has_changed(self) -> bool:
        """Whether anything is not as it was."""
        return not all(_is_as_it_was(held, was) for held, was in self._was)

    def _note(self, held: Any) -> None:
        self.size += len(_content(held))
        if self.size > self._room:
            raise CaptureError("it holds too much to be compared with a copy")
        self._was.append((held, _content(held).copy()))

    def _reach(self, roots: Iterable[Any]) -> None:
        todo = [(held, 0) for held in roots]
        seen: set[int] = set()
        for held, depth in todo:  # grows while it is read
            if type(held) in ATOMS or isinstance(held, _INERT) or id(held) in seen or depth > _DEEPEST:
                continue
            seen.add(id(held))
            if type(held) in _CONTAINERS:
                self._note(held)
            if type(held) is dict:
                todo += [(each, depth) for pair in held.items() for each in pair]
            elif type(held) in (list, tuple, set, frozenset):
                todo += [(each, depth) for each in held]
            else:
                todo.append((dict_of(held), depth + 1))


_CONTAINERS = (list, dict, set, bytearray)


def _content(owner: Any) -> Any:
    return vars(owner) if isinstance(owner, type) else owner


def _is_as_it_was(held: Any, was: Any) -> bool:
    now = _content(held)
    if len(now) != len(was):
        return False
    if type(was) is dict:
        return all(now.get(name, MISSING) is value for name, value in was.items())
    if type(was) is list:
        return all(one is other for one, other in zip(now, was, strict=True))
    return bool(now == was)


def _put_back(held: Any, was: Any) -> None:
    if isinstance(held, type):
        for name in [name for name in vars(held) if name not in was]:
            type.__delattr__(held, name)
        for name, value in was.items():
            if vars(held).get(name, MISSING) is not value:
                type.__setattr__(held, name, value)
    elif type(held) is list or type(held) is bytearray:
        held[:] = was
    else:
        held.clear()
        held.update(was)
