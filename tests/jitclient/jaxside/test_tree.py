"""Trees without jax have the shapes that they have with it."""

from collections.abc import Callable
from typing import Any

SHAPES = """
    import collections, json, sys
    from jitclient.jaxside import tree

    Pair = collections.namedtuple("Pair", "a b")
    given = (
        {"b": 1.0, "a": [Pair(1.0, (2.0, None)), collections.OrderedDict(z=1.0, y=2.0)]},
        collections.defaultdict(int, {"k": 1.0}),
        (),
    )
    leaves, shape = tree.flatten(given)
    without = "jax" not in sys.modules
    import jax

    again, treedef = tree.flatten(given)
    now = tree.shape_now(shape)
    same = [leaves == again, now == treedef, hash(now) == hash(treedef), tree.shape_now(treedef) == treedef]
    print(json.dumps([without, *same, tree.structure_of(shape) == tree.structure_of(treedef)]))
"""


def test_a_shape_is_the_same_after_jax_was_imported(run_script: Callable[..., Any]) -> None:
    assert run_script(SHAPES) == [True] * 6
