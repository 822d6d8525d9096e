"""What names an operation in any process: where jax has it, its static arguments and the types of the others."""

import functools
import io
import pickle
import sys
from typing import Any, NamedTuple

from jitclient.jaxside import internals

Recipe = bytes
"""All of that, pickled."""

_SCALARS = (bool, int, float, complex)
_ARRAYS = ("jax", "jaxlib", "ml_dtypes", "numpy")
"""The packages whose arrays and scalars have the same type everywhere."""


class _Type(NamedTuple):
    """Of an argument that is not static."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool


def write(fun: Any, options: Any, args: Any, kwargs: Any) -> Recipe | None:
    """The recipe of what JAX is asked to trace; None for what no other process could trace."""
    import jax

    try:
        positional = tuple(
            arg if at in options.static_argnums else jax.tree.map(_type_of, arg) for at, arg in enumerate(args)
        )
        named = {
            name: arg if name in options.static_argnames else jax.tree.map(_type_of, arg)
            for name, arg in kwargs.items()
        }
        into = io.BytesIO()
        pickler = pickle.Pickler(into, 5)
        pickler.fast = True  # equal ones are the same bytes, whichever of their parts are one object
        pickler.dump((place(fun, options), (positional, named)))
    except Exception:  # such as a function that cannot be pickled
        return None
    return into.getvalue()


def read(recipe: Recipe) -> tuple[Any, Any, Any]:
    """The operation, with what stands in for its positional and its named arguments."""
    import jax

    def stand_in(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(**leaf._asdict()) if isinstance(leaf, _Type) else leaf

    where, arguments = _Unpickler(io.BytesIO(recipe)).load()
    return _operation(*where), *jax.tree.map(stand_in, arguments, is_leaf=lambda leaf: isinstance(leaf, _Type))


def place(fun: Any, options: Any) -> tuple[str, str, Any]:
    """Where jax has an operation: a primitive with its parameters, or else a function that is jitted."""
    if getattr(fun, "_apply_primitive", False):
        inner = dict(zip(fun.__code__.co_freevars, (cell.cell_contents for cell in fun.__closure__), strict=True))
        return (*_place_of(inner["prim"]), inner["params"])
    module, name = fun.__module__, fun.__qualname__
    found = _operation(module, name, None) if module.partition(".")[0] == "jax" else None
    if found is None or found._fun is not fun or found._jit_info is not options:
        raise LookupError(name)
    return module, name, None


@functools.cache
def _place_of(primitive: Any) -> tuple[str, str]:
    name = f"{primitive.name}_p"
    modules = [(path, module) for path, module in list(sys.modules.items()) if path.startswith("jax.")]
    return min((path, name) for path, module in modules if vars(module).get(name) is primitive)


def _operation(module: str, name: str, params: Any) -> Any:
    found = functools.reduce(getattr, name.split("."), sys.modules[module])
    if params is not None:
        return internals.stages().of_primitive(found, **params)
    return getattr(found, "_func", found)  # of jnp.ufunc


def _type_of(leaf: Any) -> _Type:
    import jax

    kind = type(leaf)
    if kind not in _SCALARS and kind.__module__.partition(".")[0] not in _ARRAYS:
        raise TypeError(kind)
    if isinstance(leaf, jax.core.Tracer) or (isinstance(leaf, jax.Array) and leaf.committed):
        raise TypeError(kind)
    found = jax.typeof(leaf)
    if found != jax.core.ShapedArray(found.shape, found.dtype, weak_type=found.weak_type):
        raise TypeError(found)
    return _Type(found.shape, found.dtype, found.weak_type)


class _Unpickler(pickle.Unpickler):
    """Imports nothing."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules:
            raise pickle.UnpicklingError(module)
        return super().find_class(module, name)
