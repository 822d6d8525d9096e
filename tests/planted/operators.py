"""The operators: each says what may be put in place of a piece of code, as a mistake or as a bug that raises.

Left alone is what makes no difference to values (docstrings, annotations, messages of errors, parts of f-strings) and
what is above functions and classes, such as imports: without it, a module does not load.
"""

import ast
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

Operator = Callable[[Any], Iterator[ast.AST]]
"""Yields the replacements for a node; none for most nodes."""

_OTHER_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_NEXT_COMPARISON: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
}
_OTHER_FUNCTION = {"any": "all", "all": "any", "min": "max", "max": "min"}
_RAISED = ("KeyError", "TypeError", "ValueError", "RecursionError")


def _compared(node: ast.AST, others: dict[type[ast.cmpop], type[ast.cmpop]]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in others:
        yield ast.Compare(node.left, [others[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def _flip(node: ast.AST) -> Iterator[ast.AST]:
    yield from _compared(node, _OTHER_COMPARISON)


def _bound(node: ast.AST) -> Iterator[ast.AST]:
    yield from _compared(node, _NEXT_COMPARISON)


def _remove_not(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand


def _add_not(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, (ast.Compare, ast.UnaryOp)):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    if isinstance(node, ast.comprehension) and node.ifs:
        yield _with(node, ifs=[ast.UnaryOp(ast.Not(), node.ifs[0]), *node.ifs[1:]])


def _and_or(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def _plus_minus(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)


def _constant(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, ast.Constant):
        return
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, (int, float)):
        yield ast.Constant(value + 1)
    elif isinstance(value, (str, bytes)):
        yield ast.Constant(value[:0] if value else value + type(value)(b"x" if isinstance(value, bytes) else "x"))


def _return_none(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and not (node.value is None or _is_none(node.value)):
        yield ast.Return(ast.Constant(None))


def _delete(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.If, ast.For, ast.Delete)):
        yield ast.Pass()


def _swap_arguments(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args[:2]):
        first, second, *rest = node.args
        if ast.dump(first) != ast.dump(second):
            yield ast.Call(node.func, [second, first, *rest], node.keywords)


def _drop_argument(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and node.keywords:
        yield ast.Call(node.func, node.args, node.keywords[:-1])


def _unsorted(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sorted":
        yield ast.Call(ast.Name("list"), node.args[:1], [])


def _other_function(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _OTHER_FUNCTION:
        yield ast.Call(ast.Name(_OTHER_FUNCTION[node.func.id]), node.args, node.keywords)


def _slice(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Slice):
        if node.lower is None:
            yield ast.Slice(ast.Constant(1), node.upper, node.step)
        if node.upper is None:
            yield ast.Slice(node.lower, ast.UnaryOp(ast.USub(), ast.Constant(1)), node.step)


def _drop_element(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Dict):
        for n in range(len(node.keys)):
            yield ast.Dict(_without(node.keys, n), _without(node.values, n))
    elif isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
        for n in range(len(node.elts)):
            yield type(node)(_without(node.elts, n), node.ctx)


def _without(items: list[Any], n: int) -> list[Any]:
    return items[:n] + items[n + 1 :]


def _break_continue(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Break):
        yield ast.Continue()
    elif isinstance(node, ast.Continue):
        yield ast.Break()


def _raising(error: str) -> Operator:
    def operator(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            told = int(ast.get_docstring(node) is not None)
            planted = ast.parse(f"raise {error}('planted')").body
            yield _with(node, body=[*node.body[:told], *planted, *node.body[told:]])

    return operator


def _with(node: Any, **fields: Any) -> Any:
    return type(node)(**{**dict(ast.iter_fields(node)), **fields})


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


OPERATORS: dict[str, Operator] = {
    "flip": _flip,
    "bound": _bound,
    "remove-not": _remove_not,
    "add-not": _add_not,
    "and-or": _and_or,
    "plus-minus": _plus_minus,
    "constant": _constant,
    "return-none": _return_none,
    "delete": _delete,
    "swap-arguments": _swap_arguments,
    "drop-argument": _drop_argument,
    "unsorted": _unsorted,
    "any-all": _other_function,
    "slice": _slice,
    "drop-element": _drop_element,
    "break-continue": _break_continue,
    **{f"raise-{error}": _raising(error) for error in _RAISED},
}


@dataclasses.dataclass(frozen=True)
class Site:
    """A place in a tree, and what an operator puts there."""

    operator: str
    line: int
    holder: ast.AST
    field: str
    index: int | None  # where the field is a list
    replacement: ast.AST

    def put(self) -> None:
        """Change the tree."""
        if self.index is None:
            setattr(self.holder, self.field, self.replacement)
        else:
            getattr(self.holder, self.field)[self.index] = self.replacement


def sites(tree: ast.Module) -> Iterator[Site]:
    """All that the operators can do to a module, always in the same order. Lines are those of the pieces replaced."""
    yield from _sites_in(tree, 1, False)


_UNTOUCHED_FIELDS = {"annotation", "returns", "decorator_list", "type_params", "bases", "ctx"}
_UNTOUCHED = (ast.Import, ast.ImportFrom, ast.JoinedStr, ast.Global, ast.Nonlocal)


def _sites_in(holder: ast.AST, line: int, in_function: bool) -> Iterator[Site]:
    inside = in_function or isinstance(holder, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for field, index, node in _pieces(holder):
        here = getattr(node, "lineno", line)
        for name, operator in OPERATORS.items():
            if name == "delete" and not inside:
                continue
            for replacement in operator(node):
                yield Site(name, here, holder, field, index, replacement)
        if not isinstance(node, ast.Raise):  # which is left out or not, but what it says is not compared
            yield from _sites_in(node, here, inside)


def _pieces(holder: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(holder):
        if field in _UNTOUCHED_FIELDS:
            continue
        for index, node in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(node, ast.AST) and not isinstance(node, _UNTOUCHED) and not _says_only(node):
                yield field, index, node


def _says_only(node: ast.AST) -> bool:
    """Whether a statement is for readers and type checkers alone."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
