"""Changes that the program made in installed packages: no capture can put those in jax where jax uses them."""

import json
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any

import jax
import pytest

from jitclient.capture.ambient.contents import Namespace
from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.core.compat import version_of
from jitclient.errors import CaptureError

SOURCE = """
import functools
import jax
import um_library
def mine(x):
    return x + 2
{patch}
def through(x):
    return um_library.outer(x)
def direct(x):
    return um_library.inner(x)
def by_jax(x):
    return jax.numpy.sin(x)
"""


@pytest.fixture
def library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    text = "def inner(x):\n    return x + 1\n\ndef outer(x):\n    return inner(x)\n"
    (folder / "um_library.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.parametrize(
    "patch", ["mine", "functools.partial(mine)", "functools.lru_cache(mine)", "jax.jit(mine)", "staticmethod(mine)"]
)
@pytest.mark.parametrize("where", ["jax.numpy.linalg.norm", "jax.core.Tracer.clip"])
def test_what_replaces_code_of_jax_is_refused(library, write, monkeypatch, where, patch):
    owner, _, name = where.rpartition(".")
    found = jax.numpy.linalg if owner == "jax.numpy.linalg" else jax.core.Tracer
    monkeypatch.setattr(found, name, getattr(found, name))  # puts it back
    module = write(um_patcher=SOURCE.format(patch=f"{where} = {patch}"))
    with pytest.raises(CaptureError, match=rf"{found.__name__}\.{name}"):
        capture(module.by_jax)


def test_what_replaces_code_of_another_package_travels_where_user_code_names_it(library, write):
    module = write(um_patcher=SOURCE.format(patch="um_library.inner = mine"))
    assert load(capture(module.direct).payload).fn(1) == 3
    assert load(capture(module.through).payload).fn(1) == module.through(1)  # here; elsewhere, the manifest tells


def test_untouched_packages_are_fine(library, write):
    module = write(um_patcher=SOURCE.format(patch=""))
    assert load(capture(module.through).payload).fn(1) == 2
    assert load(capture(module.by_jax).payload).fn(1.0) == jax.numpy.sin(1.0)


CHANGED = """
    import json
    {first}
    import jitclient
    import jax, jax.numpy as jnp
    from jax import lax
    from jax._src import array, core
    from jax._src.interpreters import mlir as rules
    from jax._src.nn import functions
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
    from jitclient.capture.ambient.patches import find_patches

    def mine(x, *given, **named):
        return x

    class Mine:
        pass

    found = []
    for change in json.loads({changes!r}):
        before = find_patches("jax")
        exec(change)
        found.append([".".join(place) for place in find_patches("jax") if place not in before])
    print(json.dumps(found))
"""

CHANGES = {
    "mlir.register_lowering(lax.tanh_p, mlir.lower_fun(mine, multiple_results=False))": "_lowerings[tanh]",
    "mlir.register_lowering(lax.sin_p, mlir.lower_fun(mine), platform='cpu')": "_platform_specific_lowerings[cpu][sin]",
    "rules._lowerings[lax.cos_p] = rules._lowerings[lax.sin_p]": "_lowerings[cos]",
    "del rules._platform_specific_lowerings['cpu'][lax.linalg.lu_p]": "_platform_specific_lowerings[cpu][lu]",
    "ad.defjvp(lax.sin_p, lambda g, x, **named: g)": "primitive_jvps[sin]",
    "ad.deflinear2(lax.sin_p, mine)": "primitive_transposes[sin]",
    "batching.primitive_batchers[lax.sin_p] = mine": "fancy_primitive_batchers[sin]",
    "lax.cos_p.def_abstract_eval(mine)": "cos_p.abstract_eval",
    "jax.nn.relu.defjvps(lambda g, ans, x: g)": "relu.jvp",
    "array.ArrayImpl.mine = 3": "ArrayImpl.mine",
    "core.Tracer.mine = mine": "Tracer.mine",
    "functions.relu6 = mine": "functions.relu6",
    "functions.sigmoid = jnp.sin": "functions.sigmoid",
    "jax.nn.leaky_relu.__wrapped__.__defaults__ = (9.0,)": "leaky_relu.__defaults__",
    "jax.nn.elu.__wrapped__.__code__ = (lambda x, alpha=1.0: x).__code__": "elu.__code__",
    "jax.nn.soft_sign.__wrapped__.__code__ = mine.__code__": "soft_sign.__code__",
    "jax.nn.silu.__wrapped__.__defaults__ = (9.0,)": "silu.__defaults__",
    "getattr(jnp.var, '__wrapped__', jnp.var).__kwdefaults__['where'] = 1": "var.where",
}
OWN = [
    "own_p = Primitive('own'); mlir.register_lowering(own_p, mine); ad.defjvp(own_p, mine)",
    "batching.primitive_batchers[own_p] = mine; own_p.def_impl(mine)",
    "jax.tree_util.register_pytree_node(Mine, lambda mine: ((), None), lambda *_: Mine())",
    "jax.config.update('jax_enable_x64', True); jax.jit(jax.grad(jnp.sin))(1.0); jax.clear_caches()",
    "import jax.scipy.stats, jax.experimental.sparse, flax, equinox; jitclient.install()",
    "jitclient.uninstall()",
]


@pytest.fixture
def found_after(run_script: Callable[..., Any]) -> Callable[..., Any]:
    """Makes changes in a fresh process; returns what was found after each."""

    def run(changes: list[str], first: str) -> Any:
        return run_script(CHANGED.format(first=first, changes=json.dumps(changes)))

    return run


@pytest.mark.parametrize("first", ["", "import jax"])
def test_each_change_of_jax_is_found(found_after: Callable[..., Any], first: str) -> None:
    found = found_after(list(CHANGES), first)
    ends = [len(places) == 1 and places[0].endswith(end) for places, end in zip(found, CHANGES.values(), strict=True)]
    assert all(ends), found


@pytest.mark.parametrize("first", ["", "import jax, flax, equinox"])
def test_what_is_not_of_jax_changes_nothing(found_after: Callable[..., Any], first: str) -> None:
    assert found_after(OWN, first) == [[]] * len(OWN)


def test_value_under_another_name_is_a_change() -> None:
    names = {"first": len, "second": max}
    space = Namespace("table", "module", "table", names, is_known=True)
    assert space.holds_the_same()
    names["third"] = names.pop("second")
    assert not space.holds_the_same()


def test_a_change_before_the_first_look_is_found(run_script: Callable[..., Any]) -> None:
    first = "from jax import lax; from jax.interpreters import ad; ad.defjvp(lax.sin_p, lambda g, x: g)"
    program = CHANGED.format(first=first, changes="[]") + "    print(json.dumps(find_patches('jax')))\n"
    assert run_script(program) == [["jax._src.interpreters.ad", "primitive_jvps[sin]"]]


def test_failure_of_the_first_look_is_no_failure_of_the_import(run_script: Callable[..., Any]) -> None:
    first = """
        import jitclient
        from jitclient.capture.ambient import contents

        add = contents.Contents._add

        def fails(self, *given):
            assert len(self.namespaces) < 9
            add(self, *given)

        contents.Contents._add = fails
        import jax
        contents.Contents._add = add
    """
    change = "lax.cos_p.def_abstract_eval(mine)"
    [[found]] = run_script(textwrap.dedent(CHANGED).format(first=textwrap.dedent(first), changes=json.dumps([change])))
    assert found.endswith("cos_p.abstract_eval")


def test_a_change_that_is_undone_does_not_count(found_after: Callable[..., Any]) -> None:
    undone = "sine = functions.sigmoid; functions.sigmoid = jnp.sin; find_patches('jax'); functions.sigmoid = sine"
    assert found_after([undone], "") == [[]]


def test_a_function_of_operators_alone_is_refused(library: Any, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.nn.leaky_relu.__wrapped__, "__defaults__", (9.0,))
    with pytest.raises(CaptureError, match=r"leaky_relu\.__defaults__"):
        capture(lambda x: x * 2)


class Owner:
    def __init__(self) -> None:
        self.held = 0


OWNERS = {"module": types.ModuleType("module"), "class": Owner, "instance": Owner()}


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="these dictionaries have no versions")
@pytest.mark.parametrize("kind", OWNERS)
def test_version_of_names_changes_with_them(kind: str) -> None:
    owner = OWNERS[kind]

    def change(value: object) -> None:
        owner.held = value

    for _ in range(100):  # until Python has specialized the code
        change(object())
    version = version_of(vars(owner), kind == "instance")
    if version is None:  # then they are compared one by one
        assert kind == "instance"
        assert sys.version_info >= (3, 13)
        return
    found = {version.value}
    for value in range(100):
        change(value)
        found.add(version.value)
    owner.another = 1
    found.add(version.value)
    del owner.another
    found.add(version.value)
    assert len(found) == 103
