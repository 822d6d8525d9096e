"""The keywords of `jax.jit`, and their effect on the arguments of a call."""

import contextlib
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jitclient.core.notices import repeat
from jitclient.jaxside.original_jit import original_jit

Static = tuple[int | str, Any]

_ABOUT_DEVICES = ("device", "backend", "in_shardings", "out_shardings")


@dataclasses.dataclass(frozen=True)
class JitOptions:
    """The keywords of `jax.jit`, with JAX's meaning.

    Positions and names of static and donated arguments are completed from the function's signature.
    """

    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    keep_unused: bool = False
    inline: bool = False
    device: Any = None
    backend: str | None = None
    in_shardings: Any = None
    out_shardings: Any = None
    compiler_options: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, fun: Callable[..., Any], given: Mapping[str, Any]) -> "JitOptions":
        """Return the options for `fun`, given the user's keywords.

        Raises:
            TypeError: As `jax.jit` does for the same function and keywords.
            ValueError: As `jax.jit` does for the same function and keywords.
        """
        if isinstance(fun, staticmethod):
            raise TypeError(f"staticmethod arguments are not supported, got {fun}")
        if inspect.isgeneratorfunction(fun):
            raise TypeError(f"Expected a function, got a generator function: {fun}")
        signature = None
        with contextlib.suppress(TypeError, ValueError):
            signature = inspect.signature(fun)
        if signature is None and given.get("donate_argnames") is not None:
            raise ValueError(
                f"Getting the signature of function {fun} failed. Pass donate_argnums instead of donate_argnames."
            )
        options = dict(given)
        for kind in ("static", "donate"):
            numbers, names = given.get(f"{kind}_argnums"), given.get(f"{kind}_argnames")
            numbers, names = _completed(signature, f"{kind}_arg", numbers, names)
            options[f"{kind}_argnums"], options[f"{kind}_argnames"] = numbers, names
        for kind in ("argnames", "argnums"):
            both = {*options[f"static_{kind}"]} & {*options[f"donate_{kind}"]}
            if both:
                raise ValueError(f"static_{kind} and donate_{kind} cannot intersect; both have {sorted(both)[0]!r}")
        return cls(**options)

    def check_devices(self, fun: Callable[..., Any]) -> None:
        """Raise and warn as `jax.jit` does for the keywords about devices. jax is imported only if any are given."""
        if self.about_devices():
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                original_jit(fun, **self.given())
            for warning in caught:
                repeat(str(warning.message), warning.category)

    def given(self) -> dict[str, Any]:
        """Return the options that differ from JAX's defaults."""
        defaults = JitOptions()
        return {
            field.name: value
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != getattr(defaults, field.name)
        }

    def about_devices(self) -> dict[str, Any]:
        """Return the given options about devices and shardings."""
        return {name: value for name, value in self.given().items() if name in _ABOUT_DEVICES}

    def split(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Static, ...]]:
        """Return the dynamic arguments of a call, and the static ones with their position or name.

        Raises:
            ValueError: A static argument cannot be hashed.
        """
        if not self.static_argnums and not self.static_argnames:
            return tuple(args), dict(kwargs), ()
        numbers = {n % len(args) if n < 0 else n for n in self.static_argnums if -len(args) <= n < len(args)}
        statics: list[Static] = [(n, args[n]) for n in sorted(numbers)]
        statics += [(name, kwargs[name]) for name in sorted(kwargs) if name in self.static_argnames]
        for where, value in statics:
            _check_hashable(where, value)
        dynamic = tuple(arg for n, arg in enumerate(args) if n not in numbers)
        return dynamic, {k: v for k, v in kwargs.items() if k not in self.static_argnames}, tuple(statics)

    def of_program(self) -> dict[str, Any]:
        """Return the options that belong to the program, without those that the signature holds in another form."""
        excluded_prefixes = ("static_", "donate_", *_ABOUT_DEVICES)
        return {name: value for name, value in self.given().items() if not name.startswith(excluded_prefixes)}


def joined(
    positional: Sequence[Any], keywords: Mapping[str, Any], statics: Iterable[Static]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call from the results of `JitOptions.split`."""
    args, kwargs = list(positional), dict(keywords)
    for where, value in statics:
        if isinstance(where, int):
            # Positions come in rising order, so each insertion is at its final position.
            args.insert(where, value)
        else:
            kwargs[where] = value
    return tuple(args), kwargs


def _check_hashable(where: int | str, value: Any) -> None:
    try:
        hash(value)
    except TypeError as error:
        raise ValueError(
            "Non-hashable static arguments are not supported. An error occurred while trying to hash an object of type "
            f"{type(value)}, {value}. The error was:\n{type(error).__name__}: {error}\nIt is argument {where!r}."
        ) from error


def _completed(
    signature: inspect.Signature | None, what: str, numbers: Any, names: Any
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    given_numbers = None if numbers is None else _integers(numbers, f"{what}nums")
    given_names = None if names is None else _strings(names, f"{what}names")
    if signature is None:
        return given_numbers or (), given_names or ()
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if not open_ended and any(not -len(positional) <= n < len(positional) for n in given_numbers or ()):
        raise ValueError(
            f"Jitted function has {what}nums={given_numbers}, but only accepts {len(positional)} positional arguments."
        )
    unnamed = {p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL)}
    any_name = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown_names = {n for n in given_names or () if n in unnamed or not (any_name or n in signature.parameters)}
    if unknown_names:
        raise ValueError(
            f"Jitted function has invalid argnames {unknown_names} in {what}names. Function does not take these args."
        )
    if given_numbers is None and given_names is not None:
        given_numbers = tuple(n for n, p in enumerate(positional) if p.name in given_names)
    elif given_names is None and given_numbers is not None:
        # As in JAX, a position from the end has no name, as it depends on the call.
        keywordable = [(n, p) for n, p in enumerate(positional) if p.kind is p.POSITIONAL_OR_KEYWORD]
        given_names = tuple(p.name for n, p in keywordable if n in given_numbers)
    return given_numbers or (), given_names or ()


def _integers(value: Any, name: str) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(value)
    if not all(hasattr(n, "__index__") for n in numbers):
        raise TypeError(f"{name} takes an int or a sequence of ints; got {value!r}")
    return tuple(n.__index__() for n in numbers)


def _strings(value: Iterable[str], name: str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(n, str) for n in names):
        raise TypeError(f"{name} takes a string or a sequence of strings; got {value!r}")
    return names
