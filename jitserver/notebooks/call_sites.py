"""Calls of jitted functions in a cell that has not run, with their arguments as far as these exist already."""

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from jitclient.calls.remote_function import RemoteFunction

_COMPREHENSIONS = (ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
_OTHER_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)


@dataclasses.dataclass(frozen=True)
class CallSite:
    """Call of a jitted function.

    Attributes:
        text: the call, as it is written.
        function: the jitted function.
        args: the arguments.
        kwargs: the keyword arguments.
        unknown: why the arguments are not known; empty if they are.
    """

    text: str
    function: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unknown: str = ""


def call_sites(cell: str, names: dict[str, Any]) -> Iterator[CallSite]:
    """Yield the calls of jitted functions at the top level of a cell, the innermost first.

    The arguments are evaluated, unless they use a name that the cell sets, or call a jitted function.

    Args:
        cell: the source.
        names: the variables of the notebook.

    Raises:
        SyntaxError: the source is not valid.
    """
    module = ast.parse(cell)
    set_here = {node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    calls = [node for statement in module.body for node in _calls_in(statement)]
    jitted = {id(call): function for call in calls if (function := _jitted(call.func, names)) is not None}
    for call in calls:
        if id(call) in jitted:
            yield _site(call, jitted, set_here, names)


def _calls_in(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, _OTHER_SCOPES):
        return
    for child in ast.iter_child_nodes(node):
        yield from _calls_in(child)
    if isinstance(node, ast.Call):
        yield node


def _jitted(function: ast.expr, names: dict[str, Any]) -> Any:
    """Return the jitted function that an expression of names and attributes stands for; None if it is none."""
    if not all(isinstance(node, (ast.Name, ast.Attribute, ast.expr_context)) for node in ast.walk(function)):
        return None
    try:
        found = _evaluated(function, names)
    except Exception:  # it does not exist before the cell has run
        return None
    is_jitted = isinstance(getattr(found, "__func__", found), RemoteFunction) or hasattr(found, "on_daemon")
    return found if is_jitted else None


def _site(call: ast.Call, jitted: Mapping[int, Any], set_here: set[str], names: dict[str, Any]) -> CallSite:
    text, function = ast.unparse(call), jitted[id(call)]
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    inside = [node for argument in arguments for node in ast.walk(argument)]
    if any(id(node) in jitted for node in inside):
        return CallSite(text, function, unknown="an argument is the result of a jitted function")
    if later := sorted({node.id for node in inside if isinstance(node, ast.Name)} & set_here):
        return CallSite(text, function, unknown=f"the cell sets {', '.join(later)}")
    keep = ast.Call(ast.Name("_arguments", ast.Load()), call.args, call.keywords)
    try:
        args, kwargs = _evaluated(keep, {**names, "_arguments": lambda *args, **kwargs: (args, kwargs)})
    except Exception as error:
        return CallSite(text, function, unknown=f"{type(error).__name__}: {error}")
    return CallSite(text, function, args, kwargs)


def _evaluated(expression: ast.expr, names: dict[str, Any]) -> Any:
    whole = ast.fix_missing_locations(ast.Expression(expression))
    return eval(compile(whole, "<cell>", "eval"), dict(names))  # which adds the builtins
