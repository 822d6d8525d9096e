"""The daemon's half: what a trace made and its results' trees hold, as steps that make it again.

A step makes one object, by what `making` calls it, or completes one. What has no identity that counts, or is there
already, is a value in their arguments.
"""

import collections
import enum
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol

import numpy as np

from jitclient.codec import values
from jitclient.codec.plain import Reduced, Reference
from jitclient.codec.reducers.arrays import name_of_dtype
from jitclient.codec.reducers.attributes import attributes_of, slots_of
from jitclient.codec.reducers.jax_values import jit_options
from jitclient.codec.reducers.jitted import own_attributes
from jitclient.codec.reducers.layouts import layout_of
from jitclient.codec.results import places
from jitclient.codec.results.making import PATH_ENTRIES
from jitclient.codec.steps.format import COMPLETES
from jitclient.codec.user_code.installed import is_user_module
from jitclient.codec.user_code.names import MISSING, constant_home, content_of, home_of
from jitclient.errors import CaptureError

MOST_BYTES = 1 << 20
"""Metadata beyond this is data, and should be a result."""


class Holder(Protocol):
    """What both sides hold: a capture."""

    def number_of(self, obj: object) -> int | None:
        """The number of an object, or None."""

    def place_of(self, code: CodeType) -> tuple[int, int] | None:
        """The place of a code object, or None."""


class Made:
    """Collects the values that messages name by negative numbers, as they are in nothing that both sides hold."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._values: list[Any] = []
        self._numbers: dict[int, int] = {}

    def add(self, value: Any) -> Reference:
        """The number of a value, from now on."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._values)
            self._values.append(value)
        return Reference(-1 - number)

    def to_bytes(self) -> bytes:
        """All of them, for `reader.Remade`; nothing where there are none.

        Raises:
            CaptureError: one of them cannot be made again without its code or its trace.
        """
        if not self._values:
            return b""
        writer = _Writer(self._holder)
        try:
            roots = tuple(map(writer.value, self._values))
            found = values.to_bytes((tuple(writer.steps), roots))
        except (TypeError, RecursionError) as error:
            raise CaptureError(f"what the trace made cannot be sent: {error}") from error
        if len(found) > MOST_BYTES:
            raise CaptureError(f"the static part of its results takes {len(found)} bytes")
        return found


class _Writer:
    def __init__(self, holder: Holder) -> None:
        self.steps: list[Reduced] = []
        self._holder = holder
        self._known: dict[int, values.Data] = {}
        self._alive: list[Any] = []  # ids are only unique among living objects
        self._made = 0
        self._opaque = 0

    def value(self, obj: Any) -> values.Data:
        """What stands for an object."""
        kind = type(obj)
        if kind in values.AS_THEY_ARE or kind is Reduced:
            return obj
        if kind is tuple:
            return tuple([self.value(part) for part in obj])
        if kind is frozenset:
            return Reduced("frozen", tuple([self.value(part) for part in obj]))
        if id(obj) not in self._known:
            self._alive.append(obj)
            found = self._described(obj)
            self._known.setdefault(id(obj), found)
        return self._known[id(obj)]

    def makes(self, obj: Any, name: str, *args: Any) -> values.Data:
        """Adds the step that makes an object."""
        step = Reduced(name, tuple([self.value(arg) for arg in args]))
        if id(obj) not in self._known:  # else its arguments lead back to it
            self._known[id(obj)] = Reference(self._made)
            self._made += 1
            self.steps.append(step)
        return self._known[id(obj)]

    def completes(self, number: values.Data, name: str, *args: Any) -> None:
        """Adds a step that completes an object."""
        self.steps.append(Reduced(COMPLETES + name, (int(number), *[self.value(arg) for arg in args])))

    def finds(self, name: str, *args: Any) -> Reduced:
        """What stands for a value without an identity, or for one that is there already."""
        return Reduced(name, tuple([self.value(arg) for arg in args]))

    def place_of(self, func: FunctionType) -> Reduced:
        """Where the code of a function lies."""
        held = self._holder.place_of(func.__code__)
        return Reduced("place", tuple(places.place_of(func) if held is None else places.Place(None, *held, "")))

    def _described(self, obj: Any) -> values.Data:
        number = self._holder.number_of(obj)
        if number is not None:
            return Reduced("held", (number,))
        if _is_opaque(obj):
            self._opaque += 1
            return Reduced("opaque", (self._opaque - 1,))
        describe = _DESCRIBERS.get(type(obj))
        if describe is not None:
            return describe(self, obj)
        home = home_of(obj) or constant_home(obj)
        if home is not None:
            return Reduced("named", home)
        if isinstance(obj, type):
            raise CaptureError(f"class {obj.__qualname__} was made while the function was traced")
        return next(describe for is_one, describe in _OTHERS if is_one(obj))(self, obj)


def _function(writer: _Writer, func: FunctionType) -> values.Data:
    home = home_of(func)
    if home is not None:
        return Reduced("named", home)
    cells = func.__closure__ or ()
    number = writer.makes(func, "function", writer.place_of(func), func.__name__, cells)
    for cell in cells:
        made = writer.value(cell)
        if type(made) is Reference and content_of(cell) is not MISSING:  # the others are the client's own
            writer.completes(made, "set_cell", cell.cell_contents)
    keywords = func.__kwdefaults__
    attributes = tuple(_own_attributes(func).items())
    writer.completes(number, "finish", func.__defaults__, keywords and tuple(keywords.items()), attributes)
    return number


def _container(writer: _Writer, held: Any) -> values.Data:
    number = writer.makes(held, "empty", type(held).__name__)
    writer.completes(number, _FILLED_BY[type(held)], tuple(held.items() if type(held) is dict else held))
    return number


_FILLED_BY: dict[type, str] = {list: "extend", dict: "set_items", set: "update"}


def _is_opaque(obj: Any) -> bool:
    """Whether only its trace knows what it is."""
    return type(obj).__name__ in ("Jaxpr", "ClosedJaxpr") and type(obj).__module__.startswith(("jax.", "jaxlib."))


def _own_attributes(func: FunctionType) -> dict[str, Any]:
    """Without those that `functools.wraps` brings."""
    brought = getattr(getattr(func, "__wrapped__", None), "__dict__", {})
    return {name: v for name, v in vars(func).items() if name == "__wrapped__" or brought.get(name, func) is not v}


def _module(writer: _Writer, module: ModuleType) -> values.Data:
    if is_user_module(module.__name__):
        raise CaptureError(f"module {module.__name__} is part of its results")
    return Reduced("module", (module.__name__,))


def _array(writer: _Writer, array: np.ndarray[Any, Any]) -> values.Data:
    if array.dtype.hasobject or array.nbytes > MOST_BYTES:
        raise CaptureError("an array is part of the static data of its results")
    by_column = bool(array.flags.f_contiguous and not array.flags.c_contiguous)
    data = array.tobytes("F" if by_column else "C")
    return writer.makes(array, "array", array.dtype, array.shape, data, bool(array.flags.writeable), by_column)


def _dtype(writer: _Writer, dtype: np.dtype[Any]) -> values.Data:
    name = name_of_dtype(dtype)
    if name is None:
        raise CaptureError(f"{dtype} has no name")
    return Reduced("dtype", (name,))


def _is_array_of_jax(obj: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(obj, jax.Array)


def _array_of_jax(writer: _Writer, array: Any) -> values.Data:
    import jax

    if isinstance(array, jax.core.Tracer) or jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise CaptureError("a value of the trace is part of the static data of its results")
    return writer.makes(array, "jax_array", np.asarray(array), bool(array.weak_type))


def _is_abstract_sharding(obj: Any) -> bool:
    return type(obj).__name__ == "NamedSharding" and type(obj.mesh).__name__ == "AbstractMesh"


def _abstract_sharding(writer: _Writer, sharding: Any) -> values.Data:
    mesh, spec = sharding.mesh, sharding.spec
    if getattr(spec, "unreduced", None) or getattr(spec, "reduced", None):
        raise CaptureError(f"{sharding} is part of its results")
    axes = zip(mesh.axis_names, mesh.axis_sizes, [kind.name for kind in mesh.axis_types], strict=True)
    return Reduced("abstract_sharding", (tuple(axes), tuple(spec), sharding.memory_kind))


def _path_entry(writer: _Writer, entry: Any) -> values.Data:
    kind = type(entry).__name__
    return writer.finds("path_entry", kind, getattr(entry, PATH_ENTRIES[kind]))


def _partial(writer: _Writer, kind: str, partial: Any) -> values.Data:
    return writer.makes(partial, "partial", kind, partial.func, partial.args, tuple(partial.keywords.items()))


def _treedef(writer: _Writer, tree: Any) -> values.Data:
    data = tree.node_data()
    return writer.makes(tree, "treedef", data is None and tree.num_leaves == 1, data, tuple(tree.children()))


def _jitted(writer: _Writer, jitted: Any) -> values.Data:
    if own_attributes(jitted, jitted._fun):
        raise CaptureError("a jitted function with attributes of its own is part of its results")
    return writer.makes(jitted, "jit", jitted._fun, tuple(jit_options(jitted._jit_info).items()))


def _instance(writer: _Writer, obj: Any) -> values.Data:
    cls = type(obj)
    layout = layout_of(cls)
    if layout is tuple and not slots_of(obj) and not attributes_of(obj):
        return writer.makes(obj, "tuple_of", cls, tuple(tuple.__iter__(obj)))
    if layout is not object:
        raise CaptureError(f"{cls.__module__}.{cls.__qualname__} is part of its results: {obj!r:.80}")
    number = writer.makes(obj, "instance", cls)
    writer.completes(number, "restore", tuple(attributes_of(obj).items()), tuple(slots_of(obj).items()))
    return number


_Describer = Callable[[_Writer, Any], values.Data]

_DESCRIBERS: dict[type, _Describer] = {
    FunctionType: _function,
    **dict.fromkeys(_FILLED_BY, _container),
    CellType: lambda writer, cell: writer.makes(cell, "cell"),
    MethodType: lambda writer, method: writer.makes(method, "method", method.__func__, method.__self__),
    ModuleType: _module,
    functools.partial: lambda writer, p: _partial(writer, "functools", p),
    slice: lambda writer, cut: writer.finds("slice", cut.start, cut.stop, cut.step),
    types.MappingProxyType: lambda writer, proxy: writer.makes(proxy, "mapping_proxy", *gc.get_referents(proxy)),
    collections.OrderedDict: lambda writer, d: writer.makes(d, "ordered_dict", tuple(d.items())),
    collections.defaultdict: lambda writer, d: writer.makes(d, "default_dict", d.default_factory, tuple(d.items())),
    weakref.ReferenceType: lambda writer, reference: writer.makes(reference, "weak", reference()),
    np.ndarray: _array,
}

_OTHERS: tuple[tuple[Callable[[Any], bool], _Describer], ...] = (
    (lambda obj: isinstance(obj, enum.Enum), lambda writer, obj: writer.finds("member", type(obj), obj.name)),
    (lambda obj: isinstance(obj, np.dtype), _dtype),
    (lambda obj: isinstance(obj, np.generic), lambda writer, obj: writer.finds("scalar", obj.dtype, obj.tobytes())),
    (_is_array_of_jax, _array_of_jax),
    (_is_abstract_sharding, _abstract_sharding),
    (lambda obj: type(obj).__name__ == "PyTreeDef", _treedef),
    (lambda obj: type(obj).__name__ == "PjitFunction", _jitted),
    (
        lambda obj: type(obj).__name__ == "Traceback" and type(obj).__module__.startswith("jaxlib."),
        lambda writer, tb: writer.makes(tb, "traceback"),
    ),
    (lambda obj: type(obj).__name__ in PATH_ENTRIES and type(obj).__module__.startswith("jax"), _path_entry),
    (
        lambda obj: type(obj).__name__ == "Partial" and isinstance(obj, functools.partial),
        lambda writer, p: _partial(writer, "jax", p),
    ),
    (lambda obj: type(obj).__module__ == "flax.ids", lambda writer, obj: writer.makes(obj, "fresh_id")),
    (lambda obj: True, _instance),
)
"""Asked one after the other."""
