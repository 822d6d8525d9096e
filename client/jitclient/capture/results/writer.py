"""Writer of the objects that a trace made and that results' trees hold, as steps (the daemon's half).

A step calls a function of `making.py`, which makes one object or completes one. An object without an identity of its
own, or that exists already, is a value in a step's arguments.
"""

import collections
import enum
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from jitclient.capture.codec import values
from jitclient.capture.codec.plain import Reduced, Reference
from jitclient.capture.describe.arrays import content_of_array, jit_options, name_of_dtype
from jitclient.capture.describe.attributes import attributes_of, layout_of, slots_of
from jitclient.capture.describe.jitted import program_attributes
from jitclient.capture.load import Loaded
from jitclient.capture.results import places
from jitclient.capture.results.making import PATH_ENTRIES
from jitclient.capture.steps.format import COMPLETION_PREFIX
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import MISSING, constant_home, content_of, home_of
from jitclient.errors import CaptureError

MAX_BYTES = 1 << 20
"""Maximum size of this metadata; larger data should be a result."""


class TraceObjects:
    """Objects that a trace made and that both sides do not share; messages name them by negative numbers."""

    def __init__(self, holder: Loaded) -> None:
        self._holder = holder
        self._values: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._steps: list[Reduced] = []
        self._count = 0  # number of objects that the steps make
        # Each entry keeps its object alive, since ids are unique only among living objects.
        self._known: dict[int, tuple[Any, values.Data]] = {}

    def add(self, value: Any) -> Reference:
        """Return the number of a value, after adding it if it is new."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._values)
            self._values.append(value)
        return Reference(-1 - number)

    def to_bytes(self) -> bytes:
        """Return all values as bytes for `reader.RebuiltObjects`; empty if there are none.

        Raises:
            CaptureError: a value cannot be made again without its code or its trace, or the bytes exceed `MAX_BYTES`.
        """
        if not self._values:
            return b""
        try:
            roots = tuple(map(self.value, self._values))
            found = values.to_bytes((tuple(self._steps), roots))
        except (TypeError, RecursionError) as error:
            raise CaptureError(f"an object made by the trace cannot be sent: {error}") from error
        if len(found) > MAX_BYTES:
            raise CaptureError(f"the static data in the results has {len(found):,} bytes (maximum: {MAX_BYTES:,})")
        return found

    def value(self, obj: Any) -> values.Data:
        """Return the written form of an object, after adding the steps that make it."""
        kind = type(obj)
        if kind in values.SELF_WRITTEN or kind is Reduced:
            return obj
        if kind is tuple:
            return tuple([self.value(part) for part in obj])
        if kind is frozenset:
            return self.finds("frozen", *obj)
        if id(obj) not in self._known:
            self._known.setdefault(id(obj), (obj, self._described(obj)))
        return self._known[id(obj)][1]

    def makes(self, obj: Any, name: str, *args: Any) -> values.Data:
        """Add the step that makes an object, and return the object's reference."""
        step = self.finds(name, *args)
        # If the arguments lead back to the object, it has been added meanwhile.
        if id(obj) not in self._known:
            self._known[id(obj)] = obj, Reference(self._count)
            self._count += 1
            self._steps.append(step)
        return self._known[id(obj)][1]

    def completes(self, number: values.Data, name: str, *args: Any) -> None:
        """Add a step that completes an object."""
        self._steps.append(self.finds(COMPLETION_PREFIX + name, int(number), *args))

    def finds(self, name: str, *args: Any) -> Reduced:
        """Return the written form of a value without an identity, or of one that exists already."""
        return Reduced(name, tuple([self.value(arg) for arg in args]))

    def place_of(self, func: FunctionType) -> Reduced:
        """Return the place of a function's code, in the capture or in an installed module."""
        held = self._holder.place_of(func.__code__)
        return Reduced("place", places.place_of(func) if held is None else (None, *held, ""))

    def _described(self, obj: Any) -> values.Data:
        number = self._holder.number_of(obj)
        if number is not None:
            return Reduced("held", (number,))
        if _is_opaque(obj):
            raise CaptureError("the results contain a jaxpr, which cannot be sent")
        describe = _DESCRIBERS.get(type(obj))
        if describe is not None:
            return describe(self, obj)
        home = home_of(obj) or constant_home(obj)
        if home is not None:
            return Reduced("named", home)
        if isinstance(obj, type):
            raise CaptureError(f"class {obj.__qualname__} was made during the trace")
        return _other(self, obj)


def _function(writer: TraceObjects, func: FunctionType) -> values.Data:
    home = home_of(func)
    if home is not None:
        return Reduced("named", home)
    cells = func.__closure__ or ()
    number = writer.makes(func, "function", writer.place_of(func), func.__name__, cells)
    for cell in cells:
        made = writer.value(cell)
        if type(made) is Reference and content_of(cell) is not MISSING:
            # Other cells belong to the client.
            writer.completes(made, "set_cell", cell.cell_contents)
    keywords = func.__kwdefaults__
    attributes = tuple(_program_attributes(func).items())
    writer.completes(number, "finish", func.__defaults__, keywords and tuple(keywords.items()), attributes)
    return number


def _container(writer: TraceObjects, held: Any) -> values.Data:
    number = writer.makes(held, "empty", type(held).__name__)
    writer.completes(number, _FILLED_BY[type(held)], tuple(held.items() if type(held) is dict else held))
    return number


_FILLED_BY: dict[type, str] = {list: "extend", dict: "set_items", set: "update"}


def _is_opaque(obj: Any) -> bool:
    """Return whether only the trace that made an object can interpret it."""
    return type(obj).__name__ in ("Jaxpr", "ClosedJaxpr") and type(obj).__module__.startswith(("jax.", "jaxlib."))


def _program_attributes(func: FunctionType) -> dict[str, Any]:
    """Return a function's attributes without those that `functools.wraps` copied."""
    brought = getattr(getattr(func, "__wrapped__", None), "__dict__", {})
    return {name: v for name, v in vars(func).items() if name == "__wrapped__" or brought.get(name, func) is not v}


def _module(writer: TraceObjects, module: ModuleType) -> values.Data:
    if is_user_module(module.__name__):
        raise CaptureError(f"module {module.__name__} is part of the results")
    return Reduced("module", (module.__name__,))


def _array(writer: TraceObjects, array: np.ndarray[Any, Any]) -> values.Data:
    if array.dtype.hasobject or array.nbytes > MAX_BYTES:
        raise CaptureError("an array is part of the static data of the results")
    return writer.makes(array, "array", array.dtype, array.shape, *content_of_array(array))


def _dtype(writer: TraceObjects, dtype: np.dtype[Any]) -> values.Data:
    name = name_of_dtype(dtype)
    if name is None:
        raise CaptureError(f"{dtype} has no name")
    return Reduced("dtype", (name,))


def _array_of_jax(writer: TraceObjects, array: Any) -> values.Data:
    import jax

    if isinstance(array, jax.core.Tracer) or jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise CaptureError("a value of the trace is part of the static data of the results")
    return writer.makes(array, "jax_array", np.asarray(array), bool(array.weak_type))


def _sharding(writer: TraceObjects, sharding: Any) -> values.Data:
    mesh, spec = sharding.mesh, sharding.spec
    if type(mesh).__name__ != "AbstractMesh":
        return _instance(writer, sharding)
    if spec.unreduced or spec.reduced:
        raise CaptureError(f"{sharding} is part of the results")
    axes = zip(mesh.axis_names, mesh.axis_sizes, [kind.name for kind in mesh.axis_types], strict=True)
    return Reduced("abstract_sharding", (tuple(axes), tuple(spec), sharding.memory_kind))


def _path_entry(writer: TraceObjects, entry: Any) -> values.Data:
    kind = type(entry).__name__
    return writer.finds("path_entry", kind, getattr(entry, PATH_ENTRIES[kind]))


def _partial(writer: TraceObjects, kind: str, partial: Any) -> values.Data:
    return writer.makes(partial, "partial", kind, partial.func, partial.args, tuple(dict(partial.keywords).items()))


def _treedef(writer: TraceObjects, tree: Any) -> values.Data:
    data = tree.node_data()
    return writer.makes(tree, "treedef", data is None and tree.num_leaves == 1, data, tuple(tree.children()))


def _jitted(writer: TraceObjects, jitted: Any) -> values.Data:
    if program_attributes(jitted, jitted._fun):
        raise CaptureError("a jitted function with attributes of its own is part of the results")
    return writer.makes(jitted, "jit", jitted._fun, tuple(jit_options(jitted._jit_info).items()))


def _instance(writer: TraceObjects, obj: Any) -> values.Data:
    cls = type(obj)
    layout = layout_of(cls)
    if layout is tuple and not slots_of(obj) and not attributes_of(obj):
        return writer.makes(obj, "tuple_of", cls, tuple(tuple.__iter__(obj)))
    if layout is not object:
        raise CaptureError(f"{cls.__module__}.{cls.__qualname__} is part of the results: {obj!r:.80}")
    number = writer.makes(obj, "instance", cls)
    writer.completes(number, "restore", tuple(attributes_of(obj).items()), tuple(slots_of(obj).items()))
    return number


_Describer = Callable[[TraceObjects, Any], values.Data]

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

_OF_JAX: dict[str, _Describer] = {
    **dict.fromkeys(PATH_ENTRIES, _path_entry),
    "NamedSharding": _sharding,
    "Partial": lambda writer, p: _partial(writer, "jax", p),
    "PjitFunction": _jitted,
    "PyTreeDef": _treedef,
    "Traceback": lambda writer, tb: writer.makes(tb, "traceback"),
}
"""Type name of an object of JAX -> function that describes it."""


def _other(writer: TraceObjects, obj: Any) -> values.Data:
    kind, jax = type(obj), sys.modules.get("jax")
    if isinstance(obj, enum.Enum):
        return writer.finds("member", kind, obj.name)
    if isinstance(obj, np.dtype):
        return _dtype(writer, obj)
    if isinstance(obj, np.generic):
        return writer.finds("scalar", obj.dtype, obj.tobytes())
    if jax is not None and isinstance(obj, jax.Array):
        return _array_of_jax(writer, obj)
    if kind.__module__ == "flax.ids":
        return writer.makes(obj, "fresh_id")
    is_of_jax = kind.__module__.startswith(("jax.", "jaxlib."))
    return (_OF_JAX.get(kind.__name__, _instance) if is_of_jax else _instance)(writer, obj)
