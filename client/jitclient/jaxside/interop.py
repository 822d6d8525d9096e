"""Registration of this package's arrays with the process's own jax, if the program has imported jax.

Afterwards `isinstance(array, jax.Array)` and `issubclass(type(array), jax.Array)` hold, and jnp, lax, jit, grad, vmap,
scan and `device_put` accept the arrays. If a version of jax lacks the required internals, the arrays are not
`jax.Array`s, one warning is printed, and users must pass `np.asarray(array)`.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from jitclient.core.notices import warn
from jitclient.jaxside import internals
from jitclient.version import JAX

_HOME_OF_ARRAYS = "jaxlib._jax"
"""The module of JAX's array class. Some libraries, such as wandb, recognize JAX's arrays by this name."""

Array: type | None = None
"""The class that our arrays report as `__class__`, a subclass of `jax.Array`; None until jax accepts our arrays."""


def is_tracer(value: Any) -> bool:
    """Return whether a value belongs to a trace in progress in this process."""
    jax = _jax()
    return jax is not None and isinstance(value, jax.core.Tracer)


def is_jax_array(value: Any) -> bool:
    """Return whether a value is an array of the client's own jax."""
    jax = _jax()
    return jax is not None and isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)


def is_process_local(value: Any) -> bool:
    """Return whether `jit` accepts a value that no other process can hold, such as a `jax.Ref` or a token."""
    jax = _jax()
    if jax is None:
        return False
    try:
        return not isinstance(jax.typeof(value), jax.core.ShapedArray)
    except TypeError:
        return False


def class_in_jax(cls: type) -> type:
    """Return the value for `array.__class__`: a subclass of `jax.Array` if our arrays are registered, else `cls`."""
    return Array or cls


def weakly_typed(array: Any) -> Any:
    """Return the array as a weakly typed one, like a Python scalar. Imports jax."""
    import jax

    return jax.lax.convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


# ---- registering our arrays


def when_loaded(action: Callable[[], None], module: str = "jax", holding: str = "Array") -> None:
    """Call a function once a module is imported.

    If the module already has the given name, the call is immediate: the import has progressed far enough.

    Args:
        action: The function to call.
        module: The name of the module.
        holding: A name that the module has once its import is far enough for the call.
    """
    if hasattr(sys.modules.get(module), holding):
        _call(action)
        return
    finders = (finder for finder in sys.meta_path if isinstance(finder, _WhenLoaded))
    waiting = next((finder for finder in finders if finder.module == module), None)
    if waiting is None:
        waiting = _WhenLoaded(module)
        sys.meta_path.insert(0, waiting)
    waiting.actions.append(action)


def have_loaded(modules: Collection[str]) -> None:
    """Call the functions that wait for modules which were put into `sys.modules` without an import of each."""
    for finder in list(sys.meta_path):
        if isinstance(finder, _WhenLoaded) and finder.module in modules:
            finder.end()


def register_arrays(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    """Make jax treat instances of `cls` as arrays, immediately or when the program imports jax.

    Args:
        cls: The class of arrays.
        aval_of: Gives the abstract value of an instance.
        value_of: Gives the value of an instance as an array of jax.
    """
    when_loaded(lambda: _register_arrays(cls, aval_of, value_of))


def _register_arrays(cls: type, aval_of: Callable[[Any], Any], value_of: Callable[[Any], Any]) -> None:
    global Array
    try:
        internals.register_arrays(cls, aval_of, value_of)
        _add_to_live_arrays(cls)
        # JAX's log and its error messages name the line of the user's that calls ours.
        internals.hide_from_locations(os.path.dirname(os.path.dirname(__file__)) + os.sep)
        Array = _subclass(cls)
    # Other versions of jax may have different internals, which may raise any exception.
    except Exception as error:
        warn(
            f"jax {sys.modules['jax'].__version__} does not accept jitclient.Array ({error!r}): this version of "
            f"jitserver needs {JAX}. Install that (`pip install 'jitserver[server]'`), or pass arrays to its "
            "functions as np.asarray(array)"
        )


def _add_to_live_arrays(cls: type) -> None:
    """Make `jax.live_arrays` list the instances of a class, too. They are searched for when it is called."""
    backend_class = internals.backend_class()
    own = getattr(backend_class, "live_arrays", None)
    if own is None:
        return

    def live_arrays(backend: Any) -> list[Any]:
        found: list[Any] = [each for each in gc.get_objects() if type(each) is cls]
        return [*own(backend), *(array for array in found if not array.deleted)]

    backend_class.live_arrays = live_arrays


def _subclass(cls: type) -> type:
    """Return a subclass of `jax.Array` with the methods of `cls`.

    `cls` itself cannot be a subclass, because the program may import jax later.
    """
    base: type = sys.modules["jax"].Array
    metaclass = type(base)

    def is_subclass(parent: type, child: type) -> bool:
        return (child is cls and parent is base) or type.__subclasscheck__(parent, child)

    # Libraries that dispatch on `type(array)`, and `isinstance` with a union of types, ask for subclasses.
    metaclass.__subclasscheck__ = is_subclass  # type: ignore[method-assign]
    namespace = {"__slots__": (), "__module__": _HOME_OF_ARRAYS, "__doc__": cls.__doc__}
    return metaclass(cls.__name__, (*cls.__bases__, base), namespace)


def _jax() -> Any:
    """Return this process's jax module once its import is complete; None before."""
    jax = sys.modules.get("jax")
    return jax if hasattr(jax, "Array") else None


class _WhenLoaded:
    """Import finder that calls functions once, after one module has been imported.

    The finder stands first in `sys.meta_path`. The finder waits for the import itself, as programs may look up a
    module without importing it.
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
            load(module)
            self.end()

        loader.exec_module = exec_module

    def end(self) -> None:
        """Call the functions, each once, and wait no longer."""
        # Another thread may have removed this finder.
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)
        while self.actions:
            _call(self.actions.pop(0))


def _call(action: Callable[[], None]) -> None:
    """Call a function within an import of the program's, which must not fail because ours does."""
    with contextlib.suppress(Exception):
        action()
