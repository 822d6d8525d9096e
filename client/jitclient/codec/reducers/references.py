"""What code needs when it runs: the names it reads, and the modules it imports."""

import importlib.util
from typing import Any

from jitclient.codec.graph.nodes import Node
from jitclient.codec.graph.walker import Walker
from jitclient.codec.reducers.body_imports import add_names, add_source
from jitclient.codec.reducers.namespaces import bind, whole
from jitclient.codec.user_code.bytecode import Refs
from jitclient.errors import AmbientInput, CaptureError

_READERS_OF_PLACES = {"f_lineno", "tb_lineno", "co_filename", "co_firstlineno", "co_positions", "__module__"}


def add_references(walker: Walker, node: Node, names: dict[str, Any], refs: Refs) -> None:
    """Make a node need all that its code reads from `names`."""
    walker.words |= refs.words
    if refs.words & _READERS_OF_PLACES:
        raise AmbientInput("it reads where code was written, which is no part of a key")
    if "__subclasses__" in refs.words:
        raise CaptureError("it asks a class for its subclasses, which do not travel with the class")
    if refs.dynamic:
        node.needs.append((whole(walker, names), True))
    for name in sorted(refs.globals):
        node.needs += [(bound, False) for bound in bind(walker, names, name, refs.globals[name])]
    if refs.relative:
        for name in ("__name__", "__package__"):
            node.needs += [(bound, False) for bound in bind(walker, names, name, {()})]
    for name, level, wanted in refs.imports:
        if level:
            package = names.get("__package__") or names["__name__"]
            name = importlib.util.resolve_name("." * level + name, package)
        walker.uses_package(name)
        if not add_names(walker, node, names, name, wanted):
            add_source(walker, node, name, wanted)
