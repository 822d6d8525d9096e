"""absl's flags: of what the command line gave this process, the values that code reads by name."""

from typing import Any

from jitclient.codec.ambient.inputs import message_of
from jitclient.codec.graph.nodes import Node
from jitclient.codec.graph.walker import Walker
from jitclient.codec.reducers.instances import describe_instance


def describe_flags(walker: Walker, flags: Any) -> Node:
    """What stands for flags: the values whose names some code mentions, and a trap for any other use."""
    message = message_of("absl's flags, other than those that code names")
    node = Node("flags", flags, [message, []])
    walker.uses_package("absl")
    walker.at_rest(lambda: node.replace_args([message, _values_read(walker, flags)]))
    return node


def describe_flag_holder(walker: Walker, holder: Any) -> Node:
    """An object that knows the name of its flag."""
    walker.words.add(holder.name)
    return describe_instance(walker, holder)


def _values_read(walker: Walker, flags: Any) -> list[Any]:
    found = []
    for name in sorted(each for each in walker.words if each in flags):
        try:
            value = getattr(flags, name)
        except Exception:  # not parsed yet: whoever reads it must see that
            continue
        attributes = vars(flags[name])
        if "_value" in attributes:
            walker.watch.name(attributes, "_value", attributes["_value"])
        found.append([name, walker.value(value)])
    return found
