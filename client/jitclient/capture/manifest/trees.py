"""Descriptions of values as plain tuples, made from the contents of the values.

The codec, in contrast, writes objects of packages by name. The description runs no code of the user or of a package. A
value that cannot be described is a leaf of the kind "opaque".
"""

import array
import collections
import contextvars
import enum
import functools
import gc
import itertools
import random
import re
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from jitclient.capture.codec.plain import ATOMS, is_plain
from jitclient.capture.codec.tracers import is_tracer
from jitclient.capture.manifest.definitions import FIELDS, Describe, Tree, bytes_of, class_tree, function_tree
from jitclient.capture.manifest.places import (
    FOUNDATIONS,
    attribute,
    fields_of,
    is_foundation,
    is_of_python,
    is_package,
    is_users,
    module_of,
    mro,
    name_of,
    slots_of,
)
from jitclient.capture.user_code.installed import OWN_PACKAGES, is_hidden
from jitclient.capture.user_code.names import MISSING
from jitclient.capture.user_code.registry import nodes_by_hand
from jitclient.core.digests import digest

OPAQUE, ABSENT_DIGEST, OF_PROCESS = b"opaque", b"absent", b"of this process"
"""The digests of a value that cannot be described, of a name that leads to no value, and of text with an address."""

ADVANCING = "advancing"
"""The kind of objects that give another value each time: random number generators and iterators."""

TOO_LARGE = ("opaque", "too large")
"""The description of a value with too many parts to be described at each look-up."""

_SHOWN_MARK = b"value "
_SHOWN, _MAX_SHOWN = frozenset({type(None), bool, int, float}), 40
"""Types of values that explanations show, and the maximum length of their text. A string may be a secret."""

_MAX_PARTS = 20_000
_MAX_WEAK = 20
_MAX_DEPTH = 60
_MIN_ID = 1 << 24

_HANDLES = frozenset(
    {
        *("_ctypes", "_io", "_thread", "abc", "asyncio", "concurrent", "ctypes", "importlib", "inspect", "io"),
        *("logging", "multiprocessing", "select", "selectors", "socket", "ssl", "subprocess", "tempfile", "threading"),
        *("unittest", "warnings"),
    }
)
"""Modules whose objects are handles, or hold objects that other imports made."""

_VALUES = frozenset({"datetime", "decimal", "fractions", "ipaddress", "pathlib", "uuid", "zoneinfo"})
"""Modules whose objects are values that their `repr` describes completely."""

_ADDRESS = re.compile(rb" at 0x[0-9a-f]{6,16}>")
_TIMES = itertools.count()
_WEAK = (weakref.WeakKeyDictionary, weakref.WeakValueDictionary, weakref.WeakSet)
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_ANONYMOUS = (tuple, frozenset, types.MethodType, types.BuiltinFunctionType)
"""Types whose objects' identity does not matter: two equal objects are equivalent to one that occurs twice."""


class TooLargeError(Exception):
    """An error for a value with too many parts to be described."""


def digest_of_tree(tree: Tree) -> bytes:
    """Return the digest of a description, or OPAQUE; for a short plain value its own text, for explanations."""
    # No digest begins with the mark and ends in the text of a value, except by chance. NaNs have one text.
    if type(tree) in _SHOWN and tree == tree and len(text := repr(tree)) <= _MAX_SHOWN:
        return _SHOWN_MARK + text.encode()
    if type(tree) is tuple and tree[0] == "opaque":
        return OPAQUE
    data = bytes_of(tree)
    if _ADDRESS.search(data):
        return OF_PROCESS
    return digest(data) if data else OPAQUE


def text_of_state(state: bytes) -> str:
    """Return the text of a state that `digest_of_tree` returned; empty if the state is a digest."""
    if state.startswith(_SHOWN_MARK):
        return state.removeprefix(_SHOWN_MARK).decode(errors="replace")
    return "missing" if state == ABSENT_DIGEST else ""


def _walked(value: Any, memo: "Memo", first: "First | None") -> tuple[Tree, int]:
    """Return the description of a value, and the number of parts that were described."""
    walk = _TreeWalk(memo, first)
    try:
        tree = walk.tree(value)
    except TooLargeError:
        tree = TOO_LARGE
    except Exception as error:
        tree = ("opaque", type(error).__name__)
    return tree, walk.n_parts


class Described:
    """Descriptions of values, each made once: many modules hold the same object under names of their own.

    Args:
        first: If given, containers and objects are described with the contents that they had when a call with this
            table first found them; otherwise, no value may change while this object is in use.
        max_parts: How many parts may be described in all.
    """

    def __init__(self, first: "First | None" = None, max_parts: int | None = None) -> None:
        self._first = first
        self._parts_left = max_parts
        self._memo: Memo = {}
        # By id: the value, which is kept alive, and its description.
        self._trees: dict[int, tuple[Any, Tree]] = {}

    def tree(self, value: Any) -> Tree:
        """Return the description of a value.

        Raises:
            TooLargeError: The values have more parts than may be described.
        """
        if id(value) not in self._trees:
            tree, n_parts = _walked(value, self._memo if self._first is None else {}, self._first)
            self._trees[id(value)] = value, tree
            if self._parts_left is not None:
                self._parts_left -= n_parts
                if self._parts_left < 0:
                    raise TooLargeError("the packages have too much state")
        return self._trees[id(value)][1]


Memo = dict[int, tuple[Any, Tree, int]]
"""By id: an object, which is kept alive; its description; the number of parts of the description."""

First = dict[int, tuple[Any, Any]]
"""By id: a container or an object, which is kept alive; a copy of its contents when it was first found."""


class _TreeWalk:
    """The description of one value.

    A repeated object is described by its number, and so is a definition that refers to numbered objects.
    """

    def __init__(self, memo: Memo, first: First | None, weak: frozenset[int] = frozenset()) -> None:
        self._memo = memo
        self._first = first
        self._weak_around = weak  # ids of enclosing weak containers
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()
        # The number of references so far to numbered objects and to definitions that are not complete.
        self._n_references = 0
        self.n_parts = 0
        # Keeps numbered objects alive, so that no other object can get the same id.
        self._keep_alive: list[Any] = []
        self._depth = 0
        self._modules: dict[int, str] | None = None  # names by id

    def tree(self, value: Any) -> Tree:
        kind = type(value)
        if kind in ATOMS or kind is complex:
            return value
        self.n_parts += 1
        if self.n_parts > _MAX_PARTS or self._depth > _MAX_DEPTH:
            raise TooLargeError
        self._depth += 1
        try:
            if kind is types.FunctionType or issubclass(kind, type):
                return self._definition(value, function_tree if kind is types.FunctionType else class_tree)
            if kind not in _ANONYMOUS:
                self._n_references += 1
                if id(value) in self._numbers:
                    return ("again", self._numbers[id(value)])
                self._numbers[id(value)] = len(self._numbers)
            self._keep_alive.append(value)
            return self._node(value, kind)
        finally:
            self._depth -= 1

    def _definition(self, value: Any, describe: Callable[[Any, Describe], Tree]) -> Tree:
        """Return the description of a function or a class; the memo stores those that refer to no numbered object."""
        known = self._memo.get(id(value))
        if known is not None:
            self.n_parts += known[2]
            return known[1]
        if id(value) in self._open or id(value) in self._numbers:
            self._n_references += 1
            return ("again", self._numbers.get(id(value)))
        n_references, n_parts = self._n_references, self.n_parts
        self._open.add(id(value))
        tree = describe(value, self.tree)
        self._open.remove(id(value))
        if self._n_references == n_references:
            self._memo[id(value)] = value, tree, self.n_parts - n_parts
        else:
            self._numbers[id(value)] = len(self._numbers)
            self._keep_alive.append(value)
        return tree

    def _node(self, value: Any, kind: type) -> Tree:
        describe = _BY_TYPE.get(kind)
        if describe is not None:
            return describe(self, value)
        if value is MISSING or is_tracer(value):
            return ("opaque", "value of a trace")
        for base, describe in _BY_BASE:
            if issubclass(kind, base):
                return describe(self, value)
        if any("__next__" in vars(base) for base in mro(kind)) and is_foundation(module_of(kind)):
            return self._iterator(value)
        top = module_of(kind).partition(".")[0]
        # Flax draws these numbers from a counter only to distinguish objects.
        if module_of(kind) == "flax.ids":
            return ("fresh", name_of(kind))
        # The programs that a jitted function knows are not state on which a trace could depend.
        if top in OWN_PACKAGES:
            return self._wrapper(value)
        if top in FOUNDATIONS:
            return self._of_foundation(value)
        if top in _HANDLES:
            return ("opaque", name_of(kind))
        return ("value", repr(value)) if top in _VALUES else self._object(value)

    def _held(self, value: Any, copy: Callable[[Any], Any]) -> Any:
        """Return a copy of the contents of a container, now or when it was first found."""
        if self._first is None:
            return copy(value)
        if id(value) not in self._first:
            self._first[id(value)] = value, copy(value)
        return self._first[id(value)][1]

    def _all(self, *values: Any) -> tuple[Tree, ...]:
        return tuple(map(self.tree, values))

    def _dict(self, value: Any) -> Tree:
        items = ((key, held) for key, held in self._held(value, _items) if not _is_incidental(key, held))
        return ("dict", *((self._key(key), self.tree(held)) for key, held in items))

    def _key(self, key: Any) -> Tree:
        """Return the description of a dictionary key.

        An integer that is the id of a module, which differs in each process, is described by the module's name.
        """
        if type(key) is not int or key < _MIN_ID:
            return self.tree(key)
        if self._modules is None:
            self._modules = {id(module): name for name, module in dict(sys.modules).items()}
        return ("id of", self._modules[key]) if key in self._modules else key

    def _list(self, value: Any) -> Tree:
        limit = value.maxlen if type(value) is collections.deque else None
        return ("list" if limit is None else f"list of {limit}", *map(self.tree, self._held(value, list)))

    def _tuple(self, value: Any) -> Tree:
        return ("tuple", *map(self.tree, value))

    def _set(self, value: Any) -> Tree:
        return ("set", *sorted(bytes_of(self.tree(each)) for each in self._held(value, list)))

    def _weak(self, value: Any) -> Tree:
        rows = self._held(value, _weak_rows)
        # A weak container in another is a cache, which loses a row when garbage is collected.
        rows = [row for row in rows if type(row[1]) not in _WEAK]
        if len(rows) > _MAX_WEAK:
            return ("weak", "many")
        if id(value) in self._weak_around:
            return ("again", None)
        # Most weak containers are caches, which comparisons leave out. So a separate walk describes their contents: an
        # object in them must still be described in full where it occurs outside of them.
        around = self._weak_around | {id(value)}
        return (
            "weak",
            *sorted(bytes_of(tuple(map(_TreeWalk(self._memo, self._first, around).tree, row))) for row in list(rows)),
        )

    def _reference(self, value: Any) -> Tree:
        return ("reference", self.tree(value()))

    def _module(self, value: Any) -> Tree:
        """Return the description of a module that an object holds: code may read the module's constants through it."""
        held = fields_of(value)
        name = held.get("__name__")
        rows = self._held(value, _plain_items) if is_package(name) else []
        if is_users(name):
            rows = [(each, self.tree(part)) for each, part in sorted(held.items()) if not each.startswith("__")]
        return ("module", name if type(name) is str else "", (FIELDS, *rows))

    def _method(self, value: Any) -> Tree:
        return ("method", self.tree(value.__func__), self.tree(value.__self__))

    def _builtin(self, value: Any) -> Tree:
        owner = value.__self__
        return ("builtin", value.__name__, self.tree(owner))

    def _wrapper(self, value: Any) -> Tree:
        return ("wrapper", self.tree(attribute(value, "__wrapped__")))

    def _bound(self, value: Any) -> Tree:
        return ("bound", self.tree(value.__func__))

    def _property(self, value: Any) -> Tree:
        return ("property", *self._all(value.fget, value.fset, value.fdel))

    def _partial(self, value: Any) -> Tree:
        return ("partial", *self._all(value.func, value.args, value.keywords, fields_of(value)))

    def _context_var(self, value: Any) -> Tree:
        # Without an argument, since `get(None)` hides a default that the package computed when it was imported.
        try:
            return ("variable", value.name, self.tree(value.get()))
        except LookupError:
            return ("variable", value.name)

    def _pattern(self, value: Any) -> Tree:
        return ("pattern", self.tree(value.pattern), value.flags)

    def _buffer(self, value: Any) -> Tree:
        view = memoryview(value)
        return ("buffer", name_of(type(value)), view.format, str(view.shape), digest(view.tobytes()))

    def _slice(self, value: Any) -> Tree:
        return ("slice", *self._all(value.start, value.stop, value.step))

    def _enum(self, value: Any) -> Tree:
        held = {name: each for name, each in fields_of(value).items() if name not in ("__objclass__", "_sort_order_")}
        return ("enum", module_of(type(value)), name_of(type(value)), self.tree(held))

    def _random(self, value: Any) -> Tree:
        return (ADVANCING, "Random", digest(bytes_of(value.getstate())))

    def _generator(self, value: Any) -> Tree:
        frame = value.gi_frame
        if frame is None:
            return (ADVANCING, value.__qualname__)
        return (ADVANCING, value.__qualname__, frame.f_lasti, self.tree(dict(frame.f_locals)))

    def _iterator(self, value: Any) -> Tree:
        # A cycle does not show its position, so no two descriptions of one may be equal.
        if type(value) is itertools.cycle:
            return (ADVANCING, "cycle", next(_TIMES))
        hint = getattr(value, "__length_hint__", None)
        text = repr(value) if type(value) is itertools.count else ""
        return (ADVANCING, name_of(type(value)), text, hint and hint(), *self._all(*gc.get_referents(value)))

    def _of_foundation(self, value: Any) -> Tree:
        kind = type(value)
        if name_of(kind) in ("Generator", "RandomState") and module_of(kind).startswith("numpy.random"):
            bits = value.bit_generator if name_of(kind) == "Generator" else value._bit_generator
            return (ADVANCING, name_of(kind), self.tree(bits.state))
        if name_of(kind) == "ndarray" or (hasattr(value, "dtype") and hasattr(value, "__array__")):
            return self._array(value)
        if name_of(kind).endswith("DType"):
            return ("dtype", str(value))
        if not hasattr(value, "__wrapped__") and (made := self._reduced(value)) is not None:
            return made
        names = [self.tree(getattr(value, name, None)) for name in ("__module__", "__qualname__", "__name__")]
        rows = [
            (name, self.tree(held))
            for name, held in sorted(dict(fields_of(value)).items())
            if is_plain(held) or type(held) is types.FunctionType
        ]
        wrapped = getattr(value, "__wrapped__", None)
        return ("named", module_of(kind), name_of(kind), *names, (FIELDS, *rows), self.tree(wrapped))

    def _reduced(self, value: Any) -> Tree | None:
        """Return the description of an object by its own pickling; None if it has none."""
        try:
            made = value.__reduce_ex__(4)
        except Exception:
            return None
        return ("reduced", self.tree([list(part) if isinstance(part, Iterator) else part for part in made]))

    def _array(self, value: Any) -> Tree:
        import numpy as np

        base = fields_of(value).get("_base_array")
        # Typed keys of jax.random hold their data as a plain array.
        if base is not None:
            return ("keys", self.tree(sys.modules["jax"].random.key_impl(value)), self._array(base))
        held = value if type(value) is np.ndarray else np.asarray(value)
        if held.dtype.hasobject:
            return ("objects", str(held.shape), *self._all(*held.ravel().tolist()))
        own = self.tree(fields_of(value)) if type(value) is not np.ndarray and isinstance(value, np.ndarray) else None
        is_weak = bool(getattr(value, "weak_type", False))
        return ("array", name_of(type(value)), str(held.dtype), is_weak, str(held.shape), digest(held.tobytes()), own)

    def _object(self, value: Any) -> Tree:
        kind = type(value)
        rows = [(name, self.tree(held)) for name, held in self._held(value, _fields)]
        # Each thread makes its stacks on first use.
        if issubclass(kind, threading.local):
            rows = [row for row in rows if type(row[1]) is not tuple or len(row[1]) > 1]
        # An object that is written in C may show what it holds in its pickle only.
        if not rows and _has_own_pickle(kind) and not issubclass(kind, threading.local):
            made = self._reduced(value)
            return ("opaque", name_of(kind)) if made is None else made
        return ("object", self.tree(kind), self._contents(value, kind), (FIELDS, *rows))

    def _contents(self, value: Any, kind: type) -> Tree:
        """Return the description of the contents that an instance has because its class extends a builtin type."""
        for base, copy in _COPIES:
            if issubclass(kind, base):
                return self.tree(copy(value))
        return None if fields_of(value) or not issubclass(kind, BaseException) else ("opaque", name_of(kind))


def _has_own_pickle(kind: type) -> bool:
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)


def _is_incidental(key: Any, held: Any) -> bool:
    """Return whether a row of a dictionary depends on the process.

    It is made when a process first needs it, for a class of ours or a backend of einops; or it is for a class of a
    module that the program has not imported, and that the helper of `jitserver run` has.
    """
    module = module_of(key) if issubclass(type(key), type) else ""
    is_own = module.partition(".")[0] in OWN_PACKAGES
    return is_own or module_of(type(held)) == "einops._backends" or bool(module and is_hidden(module))


def _plain_items(module: Any) -> list[tuple[str, Any]]:
    items = dict(fields_of(module)).items()
    return sorted((name, held) for name, held in items if type(held) in ATOMS and not is_of_python(name))


def _fields(value: Any) -> list[tuple[str, Any]]:
    rows = [*dict(fields_of(value)).items(), *(row for row in slots_of(value) if not is_of_python(row[0]))]
    # The caches of generic functions follow from their registries.
    if module_of(type(value)) == "multipledispatch.dispatcher":
        return [row for row in rows if row[0] not in ("_cache", "_ordering")]
    return rows


def _weak_rows(value: Any) -> list[tuple[Any, Any]]:
    held = fields_of(value).get("data", ())
    return [*dict(held).items()] if type(held) is dict else [(each, None) for each in list(held)]


def _items(value: Any) -> list[tuple[Any, Any]]:
    if (rows := nodes_by_hand(value)) is not None:
        return list(rows.items())
    return list((dict(value) if type(value) is dict else value).items())


_Describe = Callable[[_TreeWalk, Any], Tree]

_BY_TYPE: dict[type, _Describe] = {
    **dict.fromkeys((dict, types.MappingProxyType), _TreeWalk._dict),
    **dict.fromkeys((list, collections.deque, *map(type, ({}.keys(), {}.values(), {}.items()))), _TreeWalk._list),
    **dict.fromkeys((set, frozenset), _TreeWalk._set),
    **dict.fromkeys(_BUILTIN, _TreeWalk._builtin),
    **dict.fromkeys((staticmethod, classmethod), _TreeWalk._bound),
    **dict.fromkeys((weakref.ref, weakref.KeyedRef), _TreeWalk._reference),
    **dict.fromkeys(_WEAK, _TreeWalk._weak),
    **dict.fromkeys((array.array, bytearray, memoryview), _TreeWalk._buffer),
    tuple: _TreeWalk._tuple,
    range: lambda walk, value: ("range", value.start, value.stop, value.step),
    slice: _TreeWalk._slice,
    type(...): lambda walk, value: ("constant", "..."),
    type(NotImplemented): lambda walk, value: ("constant", "NotImplemented"),
    types.MethodType: _TreeWalk._method,
    types.GenericAlias: lambda walk, value: ("alias", walk.tree(value.__origin__), walk.tree(value.__args__)),
    types.GeneratorType: _TreeWalk._generator,
    property: _TreeWalk._property,
    functools._lru_cache_wrapper: _TreeWalk._wrapper,
    functools.partial: _TreeWalk._partial,
    contextvars.ContextVar: _TreeWalk._context_var,
    re.Pattern: _TreeWalk._pattern,
    random.Random: _TreeWalk._random,
}

_BY_BASE: tuple[tuple[type, _Describe], ...] = (
    (types.ModuleType, _TreeWalk._module),
    (threading.local, _TreeWalk._object),
    (enum.Enum, _TreeWalk._enum),
)

_COPIES: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (collections.OrderedDict, lambda value: dict(collections.OrderedDict.items(value))),
    (dict, lambda value: dict(dict.items(value))),
    (list, lambda value: list(list.__iter__(value))),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (set, lambda value: set(set.__iter__(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (collections.deque, lambda value: list(collections.deque.__iter__(value))),
    (str, str.__str__),
    (int, int.__index__),
    (float, float.__float__),
    (bytes, lambda value: bytes.__getitem__(value, slice(None))),
)
"""Functions that copy the contents of a builtin type's instance, regardless of methods that its class overrides."""
