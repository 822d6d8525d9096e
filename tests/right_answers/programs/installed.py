"""Programs that change what is installed: functions, settings and registries of libraries."""

import collections.abc
import datetime
import functools
import sys
import types

import chex
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from flax import nnx
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from numpyro.distributions import biject_to, constraints

SET = ["case_assertions_that_are_off", "case_the_configuration_of_flax"]
WARM = [
    "case_a_setting_is_part_of_the_program",
    "case_a_jitted_method_of_a_linen_module",
]

jax.tree_util.register_pytree_node(
    types.SimpleNamespace,
    lambda space: (list(vars(space).values()), tuple(vars(space))),
    lambda names, held: types.SimpleNamespace(**dict(zip(names, held, strict=True))),
)
jax.tree_util.register_static(datetime.date)
MUL = jax.lax.mul_p
X = jnp.array([-1.0, 2.0])


class _Put:
    """An attribute that is something else meanwhile."""

    def __init__(self, owner, name, value):
        self._owner, self._name, self._value = owner, name, value

    def __enter__(self):
        self._was = vars(self._owner).get(self._name)
        setattr(self._owner, self._name, self._value)

    def __exit__(self, *error):
        if self._was is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._was)


def case_another_installed_function(jit):
    with _Put(jax.nn, "relu", jax.nn.gelu):
        return jit(lambda x: jax.nn.relu(x))(X)


def case_another_installed_function_that_a_library_calls(jit):
    with _Put(optax.losses, "squared_error", optax.losses.log_cosh), _Put(jax.nn, "softmax", jax.nn.log_softmax):
        return jit(lambda x: nn.softmax(x) + optax.losses.l2_loss(x) + jax.nn.softmax(x))(X)


def case_a_partial_of_an_installed_function(jit):
    with _Put(optax, "huber_loss", functools.partial(optax.huber_loss, delta=100.0)):
        return jit(lambda x: optax.huber_loss(x * 5))(X)


def case_a_jitted_function_in_place_of_an_installed_one(jit):
    with _Put(jax.nn, "relu", jax.jit(lambda x: x * 3)):
        return jit(lambda x: jax.nn.relu(x))(X)


def case_an_alias_that_a_library_gives(jit):
    return jit(lambda x: jax.nn.swish(x) + nn.hard_swish(x) + jnp.abs(x))(X)


def case_a_class_of_python_as_a_pytree(jit):
    def leaves(x):
        return x * len(jax.tree_util.tree_leaves(types.SimpleNamespace(a=x, b=x)))

    there = jit(lambda n: n.a + n.b)(types.SimpleNamespace(a=X, b=X))
    return jit(leaves)(X), there, jit(lambda x: types.SimpleNamespace(a=x, b=x))(X).b


def case_a_static_class_of_python(jit):
    return jit(lambda x, day: x * day.day)(X, datetime.date(2001, 2, 3))


PRODUCT = Primitive("product")
PRODUCT.def_impl(lambda x, y: x * y)
PRODUCT.def_abstract_eval(lambda x, y: jax.core.ShapedArray(x.shape, x.dtype))
mlir.register_lowering(PRODUCT, mlir.lower_fun(lambda x, y: x * y + 0.0, multiple_results=False))
batching.primitive_batchers[PRODUCT] = lambda given, axes: (PRODUCT.bind(*given), 0)


def case_a_primitive(jit):
    return jit(lambda x: PRODUCT.bind(x, x))(X), jit(jax.vmap(lambda x: PRODUCT.bind(x, x)))(X)


def case_a_primitive_that_jax_has(jit):
    return jit(lambda x: jax.lax.mul_p.bind(x, x))(X), jit(lambda x: MUL.bind(x, x))(X)


class Above3(constraints.Constraint):
    def __call__(self, x):
        return x > 3


@biject_to.register(Above3)
def _(constraint):
    return dist.transforms.AffineTransform(3.0, 2.0)


def case_registered_with_numpyro(jit):
    above = Above3()
    return jit(lambda x: biject_to(above)(x))(X), jit(lambda x: biject_to(constraints.positive)(x))(X)


def case_a_distribution_beside_what_was_registered(jit):
    return jit(lambda x: dist.Normal(0.0, 1.0).log_prob(x))(X)


class Seq:
    pass


collections.abc.Sequence.register(Seq)


def case_registered_with_an_abstract_class(jit):
    return jit(lambda x: x * (2.0 if isinstance(Seq(), collections.abc.Sequence) else 1.0))(X)


DENSE = {"params": {"kernel": jnp.ones((2, 2)), "bias": jnp.zeros(2)}}


def _times100(call, args, kwargs, context):
    out = call(*args, **kwargs)
    return out * 100 if context.method_name == "__call__" else out


def case_methods_of_flax_that_are_intercepted(jit):
    with nn.intercept_methods(_times100):
        return jit(lambda x: nn.Dense(2).apply(DENSE, x))(X)


def case_axis_rules_of_flax(jit):
    with nn.logical_axis_rules((("embed", None), ("mlp", None))):
        return jit(lambda x: x * len(nn.get_logical_axis_rules()))(X)


def case_handlers_of_numpyro(jit):
    with numpyro.handlers.substitute(data={"z": 5.0}):
        key = jax.random.PRNGKey(0)
        return jit(lambda x: numpyro.sample("z", dist.Normal(0.0, 1.0), rng_key=key) + x)(X)


def case_the_configuration_of_flax(jit):
    flax.config.update("flax_return_frozendict", True)
    try:
        return str(jax.tree_util.tree_structure(jit(lambda x: nn.Dense(2).init(jax.random.PRNGKey(0), x))(X)))
    finally:
        flax.config.update("flax_return_frozendict", False)


def case_a_setting_is_part_of_the_program(jit):
    def made():
        return type(jit(lambda x: nn.Dense(2).init(jax.random.PRNGKey(0), x))(X)).__name__

    before = made()
    flax.config.update("flax_return_frozendict", True)
    try:
        return before, made()
    finally:
        flax.config.update("flax_return_frozendict", False)


class _Scaled(nn.Module):
    """Flax holds the module open while one of its methods is called."""

    features: int

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.features)(x)

    def doubled(self, jit, params, x):
        return jit(lambda params, x: self.apply(params, x) * 2)(params, x)


def case_a_jitted_method_of_a_linen_module(jit):
    model = _Scaled(2)
    params = model.init(jax.random.PRNGKey(0), X)

    class Jitted(_Scaled):
        run = functools.partial(jit, static_argnums=0)(lambda self, params, x: self.apply(params, x))

    return model.doubled(jit, params, X), Jitted(2).run(params, X)


def _asserted(x):
    chex.assert_shape(x, (3,))
    return x * 2


def case_assertions_that_are_off(jit):
    chex.disable_asserts()
    try:
        return jit(lambda x: _asserted(x))(X)
    finally:
        chex.enable_asserts()


def case_settings_that_a_trace_changes(jit):
    def settle(x):
        flax.config.update("flax_return_frozendict", True)
        chex.disable_asserts()
        sys.setrecursionlimit(sys.getrecursionlimit() + 1)
        return x

    limit = sys.getrecursionlimit()
    try:
        return jit(settle)(X), flax.config.flax_return_frozendict, sys.getrecursionlimit() - limit
    finally:
        flax.config.update("flax_return_frozendict", False)
        chex.enable_asserts()
        sys.setrecursionlimit(limit)


def case_what_another_changed_raises_as_ever(jit):
    def fails(x):
        chex.assert_shape(x, (3,))

    try:
        jit(fails)(X)
    except AssertionError:
        return type(jit(lambda x: nn.Dense(2).init(jax.random.PRNGKey(0), x))(X)).__name__
    return "no error"


def case_a_context_that_concerns_no_package_in_use(jit):
    with numpyro.handlers.substitute(data={"z": 5.0}), nn.logical_axis_rules((("embed", None),)):
        return jit(lambda x: jnp.sin(x) + 1)(X)


def case_nnx_jit(jit):
    was, jax.jit = jax.jit, jit
    try:
        model = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        return nnx.jit(lambda model, x: model(x).sum())(model, X[None])
    finally:
        jax.jit = was


LOCAL = ["case_nnx_jit"]
WARM = [
    "case_an_alias_that_a_library_gives",
    "case_a_primitive_that_jax_has",
    "case_a_distribution_beside_what_was_registered",
    "case_a_context_that_concerns_no_package_in_use",
]
