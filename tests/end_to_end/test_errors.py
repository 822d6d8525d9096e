"""Errors of users' programs: a hundred mistakes, each of which raises what it raises in plain JAX."""

import json
import re
from typing import Any

import pytest

from .error_programs import CASES

PROGRAM = """
    import json, sys
    import jax, jax.numpy as jnp, numpy as np
    from jax import lax
    import jitclient

    if sys.argv[1] == "ours":
        jitclient.install()
    raised = {}
    for name, program in json.loads(CASES).items():
        namespace = {"jax": jax, "jnp": jnp, "np": np, "lax": lax, "__name__": "__main__"}
        try:
            exec(program, namespace)
            raised[name] = None
        except BaseException as error:
            classes = [each.__name__ for each in type(error).__mro__ if each is not BaseException]
            raised[name] = [classes, str(error).partition("\\n")[0]]
    print(json.dumps(raised))
"""

EXPLAINED = {
    "a hash": "the class of an array is jitclient's Array",
    "an attribute of a result": "the class of an array is jitclient's Array",
    "a result and a string": "the class of an array is jitclient's Array",
    "no memory": "the budget refuses, and says who holds arrays; the type and RESOURCE_EXHAUSTED are JAX's",
    "another tree of a compiled stage": "our text names both trees",
}
"""Errors whose text differs, with the reason. Their types do not."""


@pytest.mark.slow
def test_mistakes_raise_what_they_raise_in_plain_jax(own: Any) -> None:
    program = PROGRAM.replace("CASES", repr(json.dumps(CASES)))
    with own.serving():
        env = {"PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}  # a text has the dtypes in the order of a set
        plain, ours = (own.run(program, which, **env) for which in ("plain", "ours"))
    assert len(plain) > 90
    for name, raised in plain.items():
        assert raised is not None, name
        assert raised[0][0] in ours[name][0], (name, raised, ours[name])
    differ = {name: (plain[name], ours[name]) for name in plain if normal(plain[name][1]) != normal(ours[name][1])}
    assert differ.keys() == EXPLAINED.keys(), {name: differ.get(name) for name in differ.keys() ^ EXPLAINED.keys()}


def normal(text: str) -> str:
    """Return a text without what differs between runs: addresses, and what a recursion did at its limit."""
    text = re.sub("0x[0-9a-f]+", "0x", text)
    return re.sub("(maximum recursion depth exceeded) while .*", r"\1", text)
