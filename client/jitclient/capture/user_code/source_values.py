"""Comparison of a live module with its source: values that the source surely gives need not be captured.

A value counts as different, and is captured, if the bytecode of the source does not prove it.
"""

import builtins
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from jitclient.capture.user_code.bytecode import instructions
from jitclient.capture.user_code.class_body import MADE_BY_PYTHON, is_generated
from jitclient.capture.user_code.installed import is_user_module
from jitclient.capture.user_code.module_sources import Outline
from jitclient.capture.user_code.names import MISSING
from jitclient.capture.user_code.ownership import is_user_made

_Proof = Callable[[Any], bool]
_MADE_BY = {"": FunctionType, "classmethod": classmethod, "property": property, "staticmethod": staticmethod}


def unproved(code: CodeType, outline: Outline, live: dict[str, Any], package: str) -> list[str]:
    """Return the names of a live module whose values its source may not give.

    Args:
        code: code of the module's body.
        outline: outline of the module's body.
        live: namespace of the live module.
        package: package that relative imports refer to.
    """
    source = _Source(code, outline, live, package, live)
    names = [name for name in live if not name.startswith("__")]
    found = [name for name in names if not source.gives(name)]
    # Captured values may be instances of the module's classes, which must then be the same classes.
    if found:
        found += [name for name in names if name in source.classes and name not in found]
    return sorted(found)


class _Source:
    """Module or class body, with a proof for each name that its bytecode binds."""

    def __init__(
        self, code: CodeType, outline: Outline, live: Mapping[str, Any], package: str, module: dict[str, Any]
    ) -> None:
        self.classes: set[str] = set()
        self._codes = [const for const in code.co_consts if isinstance(const, CodeType)]
        self._outline = outline
        self._live = live
        self._module = module
        self._package = package
        self._proofs: dict[str, _Proof | None] = {}
        self._stars: list[str] = []
        self._read(code)
        for name, literal in outline.literals.items():
            if name in self._proofs and self._proofs[name] is None:
                self._proofs[name] = lambda value, literal=literal: _is_same(value, literal)  # type: ignore[misc]

    def gives(self, name: str) -> bool:
        """Return whether the source surely gives a name its live value."""
        value = self._live[name]
        if name not in self._proofs:
            is_submodule = isinstance(value, ModuleType) and value.__name__ == f"{self._module['__name__']}.{name}"
            return is_submodule or any(_holds(star, name, value) for star in self._stars)
        proof = self._proofs[name]
        return (proof is not None and proof(value)) or self._is_function(name, value) or self._is_class(name, value)

    def _is_function(self, name: str, value: Any) -> bool:
        """Return whether a value is the function that a `def` statement makes, with its defaults and no attributes."""
        signature = self._outline.functions.get(name)
        if signature is None or type(value) is not _MADE_BY[signature.decorator]:
            return False
        if isinstance(value, property):
            func: Any = value.fget if value.fset is None and value.fdel is None else None
        else:
            func = getattr(value, "__func__", value)
        return (
            isinstance(func, FunctionType)
            and [func.__code__] == self._codes_of(name)
            and func.__globals__ is self._module
            and not vars(func)
            and _is_same(func.__defaults__, signature.defaults)
            and _is_same(func.__kwdefaults__, signature.kwdefaults)
        )

    def _is_class(self, name: str, value: Any) -> bool:
        """Return whether a value is the class that a `class` statement makes, including all its attributes."""
        outline, codes = self._outline.classes.get(name), self._codes_of(name)
        if outline is None or len(codes) != 1 or not isinstance(value, type):
            return False
        if (value.__module__, value.__name__) != (self._module["__name__"], name):
            return False
        body = _Source(codes[0], outline, vars(value), self._package, self._module)
        is_whole = all(name in vars(value) or name.startswith("__") for name in outline.names)
        return is_whole and all(body._gives_attribute(name, held) for name, held in vars(value).items())

    def _gives_attribute(self, name: str, value: Any) -> bool:
        if name in MADE_BY_PYTHON or name == "__doc__" or name.startswith("__annotat"):
            return True
        if name in self._proofs:
            return self.gives(name)
        if isinstance(value, MemberDescriptorType | GetSetDescriptorType):
            return True
        is_dunder = name.startswith("__") and name.endswith("__")
        return is_dunder and (is_generated(name, value) or not is_user_made(value))

    def _codes_of(self, name: str) -> list[CodeType]:
        return [code for code in self._codes if code.co_name == name]

    def _read(self, code: CodeType) -> None:
        steps = instructions(code)
        imported = whole = ""
        stored: set[str] = set()
        for at, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                imported = self._resolved(step.argval, steps[at - 2].argval or 0)
                # Empty for `from a import b`; the full name for `import a.b` and `import a.b as c`.
                whole = "" if steps[at - 1].argval else imported
            elif step.opname == "IMPORT_STAR" or step.argrepr == "INTRINSIC_IMPORT_STAR":
                self._stars.append(imported)
            elif step.opname == "LOAD_BUILD_CLASS":
                bodies = [after.argval for after in steps[at + 1 : at + 3] if isinstance(after.argval, CodeType)]
                self.classes.update(body.co_name for body in bodies)
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL"):
                name = step.argval
                is_only = name not in stored and not step.is_jump_target
                stored.add(name)
                self._proofs[name] = self._proof(steps, at - 1, imported, whole) if is_only else None

    def _resolved(self, name: str, level: int) -> str:
        return importlib.util.resolve_name("." * level + name, self._package) if level else name

    def _proof(self, steps: list[Any], at: int, imported: str, whole: str) -> _Proof | None:
        """Return a test for the value that the instructions up to `at` produce; None if they do not show it."""
        last = steps[at]
        if last.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
            return lambda value: _is_same(value, last.argval)
        if last.opname == "IMPORT_FROM":
            return lambda value: _holds(imported, last.argval, value) or value is sys.modules.get(whole, MISSING)
        if last.opname == "IMPORT_NAME":
            module = imported.partition(".")[0] if whole else imported
            return lambda value: value is sys.modules.get(module, MISSING)
        chain: list[str] = []
        while steps[at].opname == "LOAD_ATTR":
            chain.insert(0, steps[at].argval)
            at -= 1
        if steps[at].opname == "LOAD_NAME":
            base = steps[at].argval
            return lambda value: value is self._followed(base, chain)
        return None

    def _followed(self, base: str, chain: list[str]) -> Any:
        """Return the object that the source reads at a dotted name, or MISSING."""
        if base in self._live:
            value = self._live[base] if self.gives(base) else MISSING
        elif self._live is self._module:
            value = getattr(builtins, base, MISSING)
        else:
            # A class body reads the name from the module as the module was at that time.
            value = MISSING
        for part in chain:
            if not isinstance(value, ModuleType | type):
                return MISSING
            value = vars(value).get(part, MISSING)
        return value


def _holds(module: str, name: str, value: Any) -> bool:
    """Return whether importing a name from a module gives this value, also in the daemon."""
    held = vars(sys.modules[module]).get(name, MISSING) if module in sys.modules else MISSING
    return held is value and (is_user_module(module) or not is_user_made(value))


def _is_same(value: Any, literal: Any) -> bool:
    """Return whether two plain values are equal, including types and order."""
    if type(value) is not type(literal):
        return False
    if type(literal) in (list, tuple):
        return len(value) == len(literal) and all(map(_is_same, value, literal))
    if type(literal) is dict:
        return _is_same([*value.items()], [*literal.items()])
    return repr(value) == repr(literal) if isinstance(literal, float | complex) else bool(value == literal)
