"""Functions whose trace puts other numbers and texts into closures, which other functions read afterwards.

JAX keeps the trace of an inner jitted function: a second function that calls it does not run it again, and finds the
variable as the first trace left it. A hit that only set the variable would let the second trace run it once more.
"""

import jax
import jax.numpy as jnp
import optax

X = jnp.arange(3.0)


def case_a_schedule_with_a_cosine(jit):
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1.0, 2, 10)
    step = jit(lambda count: schedule(count))
    return [step(jnp.int32(n)) for n in (1, 5, 20)]


def case_a_schedule_in_a_step(jit):
    optimizer = optax.sgd(optax.cosine_decay_schedule(0.1, 4))

    @jit
    def step(x, state):
        updates, state = optimizer.update(jax.grad(lambda x: (x**2).sum())(x), state)
        return optax.apply_updates(x, updates), state

    x, state = X, optimizer.init(X)
    for _ in range(3):
        x, state = step(x, state)
    return x


def converting():
    steps = 3

    def converts(x):
        nonlocal steps
        steps = float(steps)
        return x / steps

    return converts, lambda x: x * 0 + steps, lambda: repr(steps)


def case_a_number_that_is_converted(jit):
    converts, reads, shown = converting()
    integers = jnp.arange(3)
    # The function that reads the number later has another dtype by it.
    return [shown(), jit(converts)(X), shown(), jit(reads)(integers), jit(converts)(integers), shown()]


def counting():
    calls, last = 0, None

    def counts(x):
        nonlocal calls, last
        calls += 1
        last = f"{calls}: {x.shape}"
        return x + calls

    return counts, lambda: (calls, last)


def case_a_counter_and_a_text(jit):
    counts, shown = counting()
    step = jit(counts)
    return [step(X), shown(), step(X), shown(), step(jnp.ones(4)), shown()]


def case_a_counter_of_another_function(jit):
    counts, shown = counting()
    return [jit(lambda x: counts(x) * counts(x))(X), shown(), jit(lambda x: counts(x))(X), shown()]


def case_a_counter_and_a_list(jit):
    calls, seen = 0, []

    def counts(x):
        nonlocal calls
        calls += 1
        seen.append(calls)
        return x + calls

    step = jit(counts)
    return [step(X), calls, seen, step(X), calls, seen]


def case_a_counter_in_an_inner_function_of_jax(jit):
    counts, shown = counting()
    inner = jax.jit(counts)
    return [jit(lambda x: inner(x) * 2)(X), jit(lambda x: inner(x) * 3)(X), shown()]


def case_a_number_that_is_converted_after_its_use(jit):
    steps = 3

    def uses(x):
        nonlocal steps
        y = x * steps
        steps = float(steps)
        return y

    inner, x = jax.jit(uses), jnp.arange(3)
    return [jit(lambda x: inner(x) * 2)(x), jit(lambda x: inner(x) * 3)(x)]
