"""Digests of the values that a jaxpr holds besides its variables: params, avals, literals, arrays and placements."""

import enum
import functools
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.names import constant_home
from jitclient.capture.user_code.ownership import is_made_in_c
from jitclient.core.digests import array_digest
from jitclient.jaxside.avals import is_key_of_program
from jitclient.jaxside.jaxpr_digest.combining import NotComparableError, combine, in_any_order
from jitclient.jaxside.jaxpr_digest.functions import function_digest, home_digest, primitive_digest
from jitclient.wire.array_transport import KEY_PREFIX

_Digest = Callable[[Any], bytes]
_PlacementFields = Callable[[Any], list[Any]]


_PLAIN: dict[type, _Digest] = {
    type(None): lambda value: combine(b"None"),
    type(...): lambda value: combine(b"..."),
    type(NotImplemented): lambda value: combine(b"NotImplemented"),
    bool: lambda value: combine(b"bool", b"%d" % value),
    int: lambda value: combine(b"int", b"%d" % value),
    # Digests of bytes, because 0.0 == -0.0 and NaN != NaN.
    float: lambda value: combine(b"float", struct.pack("<d", value)),
    complex: lambda value: combine(b"complex", struct.pack("<dd", value.real, value.imag)),
    str: lambda value: combine(b"str", value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: combine(b"bytes", value),
}


class Values:
    """Digests of values. Equal values have equal digests in all processes; different values have different ones."""

    def __init__(self, describe: Callable[[Any], bytes | None], of_jaxpr: _Digest) -> None:
        self._describe = describe
        self._of_jaxpr = of_jaxpr
        # The keys are ids. The values hold the objects, so that no other object can get the same id.
        self._known: dict[int, tuple[Any, bytes]] = {}

    def digest(self, value: Any) -> bytes:
        """Return the digest of a value.

        Raises:
            NotComparableError: The value, or a part of it, has no identity that two processes could compare.
        """
        plain = _PLAIN.get(type(value))
        if plain is not None:
            return plain(value)
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, self._of_object(value)
        return known[1]

    def is_pure(self, aval: Any) -> bool:
        """Return whether an abstract value describes an array or a token, and not a reference to memory."""
        return type(aval) in _pure_avals()

    def _of_object(self, value: Any) -> bytes:
        for find in (self._of_container, self._of_jax, self._of_callable, self._of_instance, _of_constant):
            found = find(value)
            if found is not None:
                return found
        return self._described(value)

    def _of_container(self, value: Any) -> bytes | None:
        kind, digest = type(value), self.digest
        if kind in (tuple, list):
            return combine(kind.__name__.encode(), *map(digest, value))
        if kind is dict:
            return combine(b"dict", in_any_order(combine(b"item", digest(k), digest(v)) for k, v in value.items()))
        if kind in (set, frozenset):
            return combine(kind.__name__.encode(), in_any_order(map(digest, value)))
        if isinstance(value, enum.Enum):
            return combine(b"enum", self._of_class(kind), digest(value.name), digest(value.value))
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return combine(b"named tuple", self._of_class(kind), *map(digest, value))
        if kind is slice:
            return combine(b"slice", *map(digest, (value.start, value.stop, value.step)))
        return None

    def _of_jax(self, value: Any) -> bytes | None:
        if type(value) in _jaxprs():
            return self._of_jaxpr(value)
        # The rules of a primitive are not in the object, so the attributes do not identify it.
        if isinstance(value, _primitive_class()):
            return primitive_digest(value) or self._described(value)
        if _is_array(value):
            return _array_digest(value, self.digest)
        # jax derives classes of its own from Python's number types.
        if isinstance(value, (int, float, complex)) and hasattr(value, "aval"):
            number = _PLAIN[next(base for base in type(value).__mro__ if base in _PLAIN)](value)
            return combine(b"typed number", self._of_class(type(value)), number, self.digest(value.aval))
        if isinstance(value, (np.dtype, _key_dtype_class())):
            return _dtype_digest(value)
        if type(value) in _pure_avals():
            return combine(b"aval", self._of_class(type(value)), self.digest(_public_slots(value)))
        if type(value) is _tree_class():
            return combine(b"tree", self._of_node(value), *map(self.digest, value.children()))
        fields = _placement_fields(value)
        if fields is not None:
            return combine(b"placement", self._of_class(type(value)), *map(self.digest, fields))
        return None

    def _of_node(self, tree: Any) -> bytes:
        node = tree.node_data()
        return combine(b"leaf") if node is None else combine(b"node", self.digest(node[0]), self.digest(node[1]))

    def _of_callable(self, value: Any) -> bytes | None:
        if not callable(value):
            return None
        if self._describe(value) is not None:
            return self._described(value)
        if isinstance(value, type):
            return self._of_class(value)
        if _has_state(value):
            return None
        return function_digest(value, self.digest)

    def _of_class(self, cls: type) -> bytes:
        home = home_digest(cls)
        return self._described(cls) if home is None else combine(b"class", home)

    def _described(self, value: Any) -> bytes:
        described = self._describe(value)
        if described is None:
            raise NotComparableError(value)
        return combine(b"described", described)

    def _of_instance(self, value: Any) -> bytes | None:
        """Return the digest of an object of an installed class, computed from its slots and dict; None for others."""
        if not _has_state(value):
            return None
        held = {**dict(_slots_of(value)), **getattr(value, "__dict__", {})}
        return combine(b"instance", self._of_class(type(value)), self.digest(held))


def _of_constant(value: Any) -> bytes | None:
    """Return the digest of an object that the module of its class holds under a name; None for other objects.

    Members of enums made in C are such objects.
    """
    home = constant_home(value)
    return None if home is None else combine(b"constant of a module", *[part.encode() for part in home])


def _has_state(value: Any) -> bool:
    """Return whether slots and dict hold an object's whole state, and all code of its class is installed code."""
    bases = [base for base in type(value).__mro__ if base is not object]
    return not any(is_made_in_c(base) or is_user_module(base.__module__) for base in bases)


def _slots_of(value: Any) -> Iterator[tuple[str, Any]]:
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name in ("__weakref__", "__dict__"):
                continue
            # Python stores a private slot under a mangled name.
            if name.startswith("__"):
                raise NotComparableError(value)
            if hasattr(value, name):
                yield name, getattr(value, name)


@functools.cache
def _jaxprs() -> tuple[type, ...]:
    from jax.extend.core import ClosedJaxpr, Jaxpr

    return Jaxpr, ClosedJaxpr


@functools.cache
def _primitive_class() -> type:
    from jax.extend.core import Primitive

    return Primitive


@functools.cache
def _pure_avals() -> tuple[type, ...]:
    import jax
    from jax.extend.core import AbstractToken

    return type(jax.typeof(np.float32(0))), AbstractToken


@functools.cache
def _tree_class() -> Any:
    import jax

    return type(jax.tree.structure(0))


@functools.cache
def _key_dtype_class() -> type:
    import jax

    return type(jax.eval_shape(lambda: jax.random.key(0)).dtype)


def _is_array(value: Any) -> bool:
    """Return whether a value is an array of numpy or jax, or a scalar of numpy."""
    import jax

    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return True
    # Newer versions of jax wrap literals in classes of their own.
    return type(value).__module__.startswith("jax.") and hasattr(value, "__array__")


def _array_digest(array: Any, of_value: Callable[[Any], bytes]) -> bytes:
    """Return the digest of an array's type, its bytes, and its sharding if a user has committed it."""
    import jax

    where = array.sharding if isinstance(array, jax.Array) and array.committed else None
    dtype = _dtype_digest(array.dtype)
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return combine(
        b"array", _kind_of_array(array), dtype, of_value(tuple(array.shape)), _bytes_of_array(array), of_value(where)
    )


def _kind_of_array(array: Any) -> bytes:
    """Return whether a value is an array or a numpy scalar: some params distinguish them."""
    return b"scalar" if isinstance(array, np.generic) else b"array"


def _bytes_of_array(array: Any) -> bytes:
    data = np.ascontiguousarray(np.asarray(array))
    if data.dtype.hasobject:
        raise NotComparableError(array)
    return array_digest(data.reshape(-1).view(np.uint8).data)


def _dtype_digest(dtype: Any) -> bytes:
    """Return the digest of a dtype, including those of PRNG keys.

    Raises:
        NotComparableError: The dtype is structured, or belongs to keys of another implementation.
    """
    import jax

    if dtype == jax.dtypes.float0:
        return combine(b"float0")
    if isinstance(dtype, np.dtype) and dtype.fields is None:
        scalar = dtype.type
        return combine(b"dtype", *[part.encode() for part in (scalar.__module__, scalar.__qualname__, dtype.str)])
    name = str(dtype)
    if not name.startswith(KEY_PREFIX) or is_key_of_program(dtype):
        raise NotComparableError(dtype)
    return combine(b"key", name.encode())


def _placement_fields(value: Any) -> list[Any] | None:
    """Return the values that distinguish a mesh, sharding or device from others of its class; None for other objects.

    The values are public attributes, and not all of them: some of these classes also store caches in attributes, and
    others are made in C.

    Raises:
        NotComparableError: The object is a sharding of another class.
    """
    for cls, fields in _placement_classes().items():
        if type(value) is cls:
            return fields(value)
    if isinstance(value, _sharding_class()):
        raise NotComparableError(value)
    return None


@functools.cache
def _placement_classes() -> dict[type, _PlacementFields]:
    import jax
    from jax import sharding

    return {
        sharding.PartitionSpec: lambda spec: [tuple(spec), _public_slots(spec)],
        sharding.AbstractMesh: lambda mesh: [
            *(mesh.axis_sizes, mesh.axis_names, mesh.axis_types, getattr(mesh, "abstract_device", None))
        ],
        sharding.Mesh: lambda mesh: [
            *(mesh.devices.shape, list(mesh.devices.flat), mesh.axis_names, getattr(mesh, "axis_types", None))
        ],
        sharding.NamedSharding: lambda placed: [placed.mesh, placed.spec, placed.memory_kind, repr(placed)],
        sharding.SingleDeviceSharding: lambda placed: [*placed.device_set, placed.memory_kind, repr(placed)],
        type(jax.devices()[0]): lambda device: [device.platform, device.device_kind, device.process_index, device.id],
    }


@functools.cache
def _sharding_class() -> type:
    from jax.sharding import Sharding

    return Sharding


def _public_slots(value: Any) -> dict[str, Any]:
    """Return the contents of an object's public slots. jax stores computed values in private ones."""
    names = [name for cls in type(value).__mro__ for name in vars(cls).get("__slots__", ()) if name[0] != "_"]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}
