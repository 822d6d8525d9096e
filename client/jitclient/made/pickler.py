"""The daemon's half: what a trace made and its results' trees hold, as bytes that call `making` only."""

import collections
import enum
import functools
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol

import numpy as np

from jitclient.capture.attributes import attributes_of, slots_of
from jitclient.capture.calls import own_attributes, rebuild_jit
from jitclient.capture.installed import is_user_module
from jitclient.capture.jax_values import jit_options
from jitclient.capture.layouts import layout_of
from jitclient.capture.make_values import jax_array, treedef
from jitclient.capture.names import constant_home, home_of
from jitclient.codec.words import Reference
from jitclient.errors import CaptureError
from jitclient.made import making, places

MOST_BYTES = 1 << 20
"""Metadata beyond this is data, and should be a result."""

_ATOMS = frozenset({type(None), bool, int, float, str, bytes, tuple, frozenset})


class Holder(Protocol):
    """What both sides hold: a capture."""

    def number_of(self, obj: object) -> int | None:
        """The number of an object, or None."""

    def place_of(self, code: CodeType) -> tuple[int, int] | None:
        """The place of a code object, or None."""


class Made:
    """Collects the values that messages name by negative positions, as they are in nothing that both sides hold."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._values: list[Any] = []
        self._numbers: dict[int, int] = {}

    def add(self, value: Any) -> Reference:
        """The position of a value, from now on."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._values)
            self._values.append(value)
        return Reference(-1 - number)

    def to_bytes(self) -> bytes:
        """All of them, for `unpickler.Remade`; nothing where there are none.

        Raises:
            CaptureError: one of them cannot be made again without its code or its trace.
        """
        if not self._values:
            return b""
        file = io.BytesIO()
        try:
            _Pickler(file, self._holder).dump(tuple(self._values))
        except (pickle.PicklingError, TypeError, RecursionError) as error:
            raise CaptureError(f"what the trace made cannot be sent: {error}") from error
        if file.tell() > MOST_BYTES:
            raise CaptureError(f"the static part of its results takes {file.tell()} bytes")
        return file.getvalue()


class _CodeOf:
    """Stands for the code of a function."""

    def __init__(self, place: places.Place) -> None:
        self.place = place


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, holder: Holder) -> None:
        super().__init__(file, protocol=5)
        self._holder = holder
        self._opaque: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is _CodeOf:
            return tuple(obj.place)
        if kind in _ATOMS:
            return None
        number = self._holder.number_of(obj)
        return [self._opaque.setdefault(id(obj), len(self._opaque))] if number is None and _is_opaque(obj) else number

    def reducer_override(self, obj: Any) -> Any:
        if id(obj) in making.IDS:
            return NotImplemented
        reducer = _REDUCERS.get(type(obj))
        if reducer is not None:
            return reducer(self, obj)
        home = home_of(obj) or constant_home(obj)
        if home is not None:
            return making.named, home
        if isinstance(obj, type):
            raise CaptureError(f"class {obj.__qualname__} was made while the function was traced")
        return next(reducer for is_one, reducer in _OTHERS if is_one(obj))(self, obj)

    def function(self, func: FunctionType) -> Any:
        home = home_of(func)
        if home is not None:
            return making.named, home
        held = self._holder.place_of(func.__code__)
        place = places.place_of(func) if held is None else places.Place(None, *held, "")
        cells = func.__closure__ or ()
        state = (
            tuple([(cell, cell.cell_contents) for cell in cells if not self._is_given(cell)]),
            func.__defaults__,
            func.__kwdefaults__,
            _own_attributes(func),
        )
        return making.function, (_CodeOf(place), func.__name__, cells), state, None, None, making.finish

    def _is_given(self, cell: CellType) -> bool:
        """Whether there is nothing to fill in: it is the client's own, or empty."""
        return self._holder.number_of(cell) is not None or _is_empty(cell)


def _is_opaque(obj: Any) -> bool:
    """Whether only its trace knows what it is."""
    return type(obj).__name__ in ("Jaxpr", "ClosedJaxpr") and type(obj).__module__.startswith(("jax.", "jaxlib."))


def _own_attributes(func: FunctionType) -> dict[str, Any]:
    """Without those that `functools.wraps` brings."""
    brought = getattr(getattr(func, "__wrapped__", None), "__dict__", {})
    return {name: v for name, v in vars(func).items() if name == "__wrapped__" or brought.get(name, func) is not v}


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _class(pickler: _Pickler, cls: type) -> Any:
    if cls is type(None):
        return making.plain, ("NoneType", ())
    home = home_of(cls)
    if home is None:
        raise CaptureError(f"class {cls.__qualname__} was made while the function was traced")
    return making.named, home


def _module(pickler: _Pickler, module: ModuleType) -> Any:
    if is_user_module(module.__name__):
        raise CaptureError(f"module {module.__name__} is part of its results")
    return making.module, (module.__name__,)


def _array(pickler: _Pickler, array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.hasobject or array.nbytes > MOST_BYTES:
        raise CaptureError("an array is part of the static data of its results")
    return making.array, (array.dtype, array.shape, array.tobytes())


def _dtype(pickler: _Pickler, dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None or dtype.subdtype is not None or dtype.metadata or dtype.kind == "T":
        raise CaptureError(f"{dtype} has no name")
    return making.dtype, (dtype.name if dtype.type.__module__ == "ml_dtypes" else dtype.str,)


def _is_array_of_jax(obj: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(obj, jax.Array)


def _array_of_jax(pickler: _Pickler, array: Any) -> Any:
    import jax

    if isinstance(array, jax.core.Tracer) or jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise CaptureError("a value of the trace is part of the static data of its results")
    return jax_array, (np.asarray(array), bool(array.weak_type))


def _is_abstract_sharding(obj: Any) -> bool:
    return type(obj).__name__ == "NamedSharding" and type(obj.mesh).__name__ == "AbstractMesh"


def _abstract_sharding(pickler: _Pickler, sharding: Any) -> Any:
    mesh, spec = sharding.mesh, sharding.spec
    if getattr(spec, "unreduced", None) or getattr(spec, "reduced", None):
        raise CaptureError(f"{sharding} is part of its results")
    axes = zip(mesh.axis_names, mesh.axis_sizes, [kind.name for kind in mesh.axis_types], strict=True)
    return making.abstract_sharding, (tuple(axes), tuple(spec), sharding.memory_kind)


def _treedef(pickler: _Pickler, tree: Any) -> Any:
    data = tree.node_data()
    return treedef, (data is None and tree.num_leaves == 1, data, tree.children())


def _jitted(pickler: _Pickler, jitted: Any) -> Any:
    if own_attributes(jitted, jitted._fun):
        raise CaptureError("a jitted function with attributes of its own is part of its results")
    return rebuild_jit, (jitted._fun, jit_options(jitted._jit_info))


def _instance(pickler: _Pickler, obj: Any) -> Any:
    cls = type(obj)
    layout = layout_of(cls)
    if layout is tuple and not slots_of(obj) and not attributes_of(obj):
        return making.tuple_of, (cls, tuple(tuple.__iter__(obj)))
    if layout is not object:
        raise CaptureError(f"{cls.__module__}.{cls.__qualname__} is part of its results: {obj!r:.80}")
    return making.instance, (cls,), (attributes_of(obj), slots_of(obj)), None, None, making.restore


_REDUCERS: dict[type, Callable[[_Pickler, Any], Any]] = {
    FunctionType: _Pickler.function,
    type: _class,
    CellType: lambda _, cell: (making.cell, ()),
    MethodType: lambda _, method: (making.method, (method.__func__, method.__self__)),
    ModuleType: _module,
    functools.partial: lambda _, p: (making.partial, ("functools", p.func, p.args, p.keywords)),
    complex: lambda _, number: (making.plain, ("complex", (number.real, number.imag))),
    slice: lambda _, cut: (making.plain, ("slice", (cut.start, cut.stop, cut.step))),
    range: lambda _, numbers: (making.plain, ("range", (numbers.start, numbers.stop, numbers.step))),
    type(...): lambda _, dots: (making.plain, ("ellipsis", ())),
    type(NotImplemented): lambda _, no: (making.plain, ("NotImplementedType", ())),
    types.MappingProxyType: lambda _, proxy: (making.plain, ("mappingproxy", (dict(proxy),))),
    collections.OrderedDict: lambda _, d: (making.plain, ("OrderedDict", (tuple(d.items()),))),
    collections.defaultdict: lambda _, d: (making.plain, ("defaultdict", (d.default_factory, tuple(d.items())))),
    weakref.ReferenceType: lambda _, reference: (making.weak, (reference(),)),
    np.ndarray: _array,
}

_OTHERS: tuple[tuple[Callable[[Any], bool], Callable[[_Pickler, Any], Any]], ...] = (
    (lambda obj: isinstance(obj, enum.Enum), lambda _, obj: (making.member, (type(obj), obj.name))),
    (lambda obj: isinstance(obj, np.dtype), _dtype),
    (lambda obj: isinstance(obj, np.generic), lambda _, obj: (making.scalar, (obj.dtype, obj.tobytes()))),
    (_is_array_of_jax, _array_of_jax),
    (_is_abstract_sharding, _abstract_sharding),
    (lambda obj: type(obj).__name__ == "PyTreeDef", _treedef),
    (lambda obj: type(obj).__name__ == "PjitFunction", _jitted),
    (
        lambda obj: type(obj).__name__ == "Partial" and isinstance(obj, functools.partial),
        lambda _, p: (making.partial, ("jax", p.func, p.args, p.keywords)),
    ),
    (lambda obj: type(obj).__module__ == "flax.ids", lambda _, obj: (making.fresh_id, ())),
    (lambda obj: True, _instance),
)
"""Asked one after the other."""
