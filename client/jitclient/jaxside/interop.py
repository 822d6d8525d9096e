"""Registers our arrays with this process's own jax, if the program has imported it.

Then `isinstance(array, jax.Array)` and `issubclass(type(array), jax.Array)` hold, and jnp, lax, jit, grad, vmap, scan
and `device_put` accept our arrays. If a version of jax lacks what that takes, our arrays are not `jax.Array`s, one
warning says so, and users must pass `np.asarray(array)`.
"""

import contextlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from jitclient.core.notices import warn
from jitclient.jaxside import internals

_HOME_OF_ARRAYS = "jaxlib._jax"
"""The module of the class of JAX's arrays, by which some libraries know them, such as wandb."""

Array: type | None = None
"""The class that our arrays say they have, a subclass of `jax.Array`, once this process's jax knows them."""


def is_tracer(value: Any) -> bool:
    """Whether a value belongs to a trace in progress in this process."""
    jax = _jax()
    return jax is not None and isinstance(value, jax.core.Tracer)


def is_jax_array(value: Any) -> bool:
    """Whether a value is an array of the client's own jax."""
    jax = _jax()
    return jax is not None and isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def is_of_this_process(value: Any) -> bool:
    """Whether a value is one that jit accepts but no other process can hold, such as a `jax.Ref` or a token."""
    jax = _jax()
    if jax is None:
        return False
    try:
        return not isinstance(jax.typeof(value), jax.core.ShapedArray)
    except TypeError:
        return False


def class_in_jax(cls: type) -> type:
    """The value of `array.__class__`: a subclass of `jax.Array` if our arrays are registered."""
    return Array or cls


def weakly_typed(array: Any) -> Any:
    """The array as weakly typed, like a Python scalar. Imports jax."""
    import jax

    return jax.lax.convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


# ---- registering our arrays


def when_loaded(action: Callable[[], None], module: str = "jax", holding: str = "Array") -> None:
    """Calls a function now if a module is imported so far that it has a name, or else once the program imports it."""
    if hasattr(sys.modules.get(module), holding):
        action()
        return
    finders = (finder for finder in sys.meta_path if isinstance(finder, _WhenLoaded))
    waiting = next((finder for finder in finders if finder.module == module), None)
    if waiting is None:
        waiting = _WhenLoaded(module)
        sys.meta_path.insert(0, waiting)
    waiting.actions.append(action)


def introduce(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    """Makes jax treat instances of `cls` as arrays, now or when the program imports it.

    Args:
        cls: the class of arrays.
        aval_of: the abstract value of one.
        value_of: the value of one as an array of jax.
    """
    when_loaded(lambda: _introduce(cls, aval_of, value_of))


def _introduce(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    global Array
    try:
        internals.register_arrays(cls, aval_of, value_of)
        Array = _subclass(cls)
    except Exception as error:  # jax's internals: other versions may differ in any way
        warn(
            f"jax {sys.modules['jax'].__version__} does not accept jitclient.Array ({error!r}): pass arrays to its "
            "functions as np.asarray(array)"
        )


def _subclass(cls: type) -> type:
    """A subclass of `jax.Array` with the methods of `cls`, which cannot be one: jax may be loaded after it."""
    base: type = sys.modules["jax"].Array
    metaclass = type(base)

    def is_subclass(parent: type, child: type) -> bool:
        return (child is cls and parent is base) or type.__subclasscheck__(parent, child)

    # Libraries that dispatch on `type(array)`, and `isinstance` with a union of types, ask for subclasses.
    metaclass.__subclasscheck__ = is_subclass  # type: ignore[method-assign]
    namespace = {"__slots__": (), "__module__": _HOME_OF_ARRAYS, "__doc__": cls.__doc__}
    return metaclass(cls.__name__, (*cls.__bases__, base), namespace)


def _jax() -> Any:
    """The jax of this process, once it is imported completely."""
    jax = sys.modules.get("jax")
    return jax if hasattr(jax, "Array") else None


class _WhenLoaded:
    """The first finder of modules until one module has been imported; then calls a function, once. Finding a module is
    not enough, as programs may find it without importing it.
    """

    def __init__(self, module: str) -> None:
        self.actions: list[Callable[[], None]] = []
        self.module = module

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        if name != self.module:
            return None
        for finder in list(sys.meta_path):
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            with contextlib.suppress(ValueError):  # another thread removed it
                sys.meta_path.remove(self)
            load(module)
            for action in self.actions:
                action()

        loader.exec_module = exec_module
