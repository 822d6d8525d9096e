"""Programs that change what is installed: functions, settings and registries of libraries."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

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


def case_a_partial_method_of_an_installed_class(jit):
    without = functools.partialmethod(nn.Dense.__init__, use_bias=False)
    with _Put(nn.Dense, "__init__", without):
        return jit(lambda x: nn.Dense(2).init(jax.random.PRNGKey(0), x))(X)


def case_an_attribute_of_an_installed_class(jit):
    with _Put(nn.Module, "scale", 3.0):

        class Mine(nn.Module):
            def __call__(self, x):
                return x * getattr(self, "scale", 1.0)

        return jit(lambda x: x * getattr(nn.Module, "scale", 1.0))(X), jit(lambda x: Mine().apply({}, x))(X)


def case_an_alias_that_a_library_gives(jit):
    return jit(lambda x: jax.nn.swish(x) + nn.hard_swish(x) + jnp.abs(x))(X)


WARM = ["case_an_alias_that_a_library_gives"]
