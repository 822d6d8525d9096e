"""Recipes, which name a traced operation in any process.

A recipe consists of the place where jax holds the operation, its static arguments, and the types of its other
arguments.
"""

import functools
import io
import pickle
import sys
from typing import Any, NamedTuple

from jitclient.jaxside import internals

Recipe = bytes
"""The pickled bytes of a recipe."""

_SCALARS = (bool, int, float, complex)
_ARRAYS = ("jax", "jaxlib", "ml_dtypes", "numpy")
"""The packages whose arrays and scalars have the same type in every process."""


class _Type(NamedTuple):
    """The type of an argument that is not static."""

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool


def write(fun: Any, options: Any, args: Any, kwargs: Any) -> Recipe | None:
    """Return the recipe of an operation that JAX is to trace; None if no other process could trace it."""
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
        # Without the pickler's memo, equal recipes have equal bytes, no matter which of their parts are one object.
        pickler.fast = True
        pickler.dump((place(fun, options), (positional, named)))
    # An argument may be, for example, a function that cannot be pickled.
    except Exception:
        return None
    return into.getvalue()


def read(recipe: Recipe) -> tuple[Any, Any, Any]:
    """Return the operation that a recipe names, with stand-ins for its positional and its keyword arguments."""
    import jax

    def stand_in(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct(**leaf._asdict()) if isinstance(leaf, _Type) else leaf

    where, arguments = _RecipeUnpickler(io.BytesIO(recipe)).load()
    return _operation(*where), *jax.tree.map(stand_in, arguments, is_leaf=lambda leaf: isinstance(leaf, _Type))


def place(fun: Any, options: Any) -> tuple[str, str, Any]:
    """Return the place where jax holds an operation: its module, its name, and the parameters of a primitive.

    The parameters are None if the operation is a jitted function.

    Raises:
        LookupError: jax does not hold the function under its name.
    """
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
    modules = [(path, module) for path, module in dict(sys.modules).items() if path.startswith("jax.")]
    return min((path, name) for path, module in modules if vars(module).get(name) is primitive)


def _operation(module: str, name: str, params: Any) -> Any:
    found = functools.reduce(getattr, name.split("."), sys.modules[module])
    if params is not None:
        return internals.stages().of_primitive(found, **params)
    # A `jnp.ufunc` holds its jitted function as `_func`.
    return getattr(found, "_func", found)


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


class _RecipeUnpickler(pickle.Unpickler):
    """Unpickler that imports no modules."""

    def find_class(self, module: str, name: str) -> Any:
        if module not in sys.modules:
            raise pickle.UnpicklingError(module)
        return super().find_class(module, name)
