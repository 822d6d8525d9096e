"""Effects of programs: they happen in this process, in its order, on its streams, and to its objects."""

import contextlib
import csv
import dataclasses
import functools
import io
import os
import socket
import threading
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from jax.experimental import checkify, io_callback
from scipy.spatial import KDTree

X = np.arange(4, dtype=np.float32)


@contextlib.contextmanager
def _printed():
    with contextlib.redirect_stdout(io.StringIO()) as text:
        yield text
        jax.effects_barrier()


def _like(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


# ---- prints


def case_a_print(jit):
    @jit
    def f(x):
        jax.debug.print("x is {x}, its sum {:.3f}, and {kind}", x.sum(), x=x, kind="a string")
        return x + 1

    with _printed() as text:
        values = [f(X), f(X * 2), f(f(X))]
    return values, text.getvalue()


def case_prints_in_the_order_of_a_scan(jit):
    @jit
    def f(x):
        def body(carry, n):
            jax.debug.print("step {n}: {carry}", n=n, carry=carry, ordered=True)
            return carry * 1.01 + n, carry

        return jax.lax.scan(body, x, jnp.arange(1000))

    with _printed() as text:
        values = f(np.float32(1))
    return values, text.getvalue()


def case_prints_under_cond_while_and_vmap(jit):
    def body(state):
        n, x = state
        jax.lax.cond(n % 2 == 0, lambda: jax.debug.print("even {}", n), lambda: jax.debug.print("odd {}", n))
        return n + 1, x * 2

    @jit
    def f(x):
        jax.vmap(lambda one: jax.debug.print("one of many: {}", one, ordered=False))(x)
        return jax.lax.while_loop(lambda state: state[0] < 5, body, (0, x))

    with _printed() as text:
        values = f(X)
    lines = text.getvalue().splitlines()
    return values, sorted(lines[:4]), lines[4:]


def case_prints_of_a_gradient(jit):
    def loss(x):
        jax.debug.print("forward {}", x)
        return jnp.sum(jnp.sin(x) ** 2)

    @jit
    def f(x):
        value, gradient = jax.value_and_grad(jax.checkpoint(loss))(x)
        jax.debug.print("gradient {}", gradient)
        return value

    with _printed() as text:
        values = f(X)
    return values, sorted(text.getvalue().splitlines())


def case_prints_with_numpys_options(jit):
    def printing():
        def f(x):
            jax.debug.print("{}", x)
            return x

        return jit(f)

    found = []
    for precision in (2, 6, 8):
        with np.printoptions(precision=precision, threshold=3), _printed() as text:
            printing()(X / 3)
        found.append(text.getvalue())
    return found


def case_a_print_in_the_body(jit):
    @jit
    def f(x, n=1):
        print("tracing", x.shape, type(x).__name__ != "ndarray")
        return x + n

    with _printed() as text:
        f(X), f(X), f(X, 2.0), f(np.ones((2, 2), np.float32)), f(np.ones((2, 2), np.float32))
    return text.getvalue()


# ---- functions and objects of this process

losses = []
LIMIT = 2.0


def note(x, step=0):
    losses.append((type(x).__name__ if isinstance(x, np.ndarray) else "array", float(np.sum(x)), int(step)))


@dataclasses.dataclass
class Logger:
    name: str
    lines: list = dataclasses.field(default_factory=list)

    def __call__(self, x):
        self.lines.append((self.name, float(x.sum())))

    def note(self, x, *, scale):
        self.lines.append((self.name, float(x.sum() * scale)))


def case_a_live_list(jit):
    losses.clear()

    @jit
    def f(x):
        jax.debug.callback(note, x, step=3)
        return x * 2

    values = [f(X), f(f(X))]
    jax.effects_barrier()
    return values, losses


def case_objects_with_state(jit):
    first, second = Logger("first"), Logger("second")

    @jit
    def f(x):
        jax.debug.callback(first, x)
        jax.debug.callback(second.note, x, scale=2)
        jax.debug.callback(functools.partial(second.note, scale=3), x, ordered=True)
        return x

    f(X), f(X + 1)
    jax.effects_barrier()
    return first.lines, sorted(second.lines)


def case_a_closure_of_the_trace(jit):
    found = []

    @jit
    def f(x):
        for n in range(3):
            jax.debug.callback(lambda v, n=n, k=n * LIMIT: found.append((n, k, float(v[n]))), x, ordered=True)
        return x

    f(X)
    jax.effects_barrier()
    return found


started = time.time()
seen = [os.urandom(8)]


def log_with_time(x):
    seen.append((float(x), time.time() - started < 3600))


def case_a_logger_whose_values_differ_in_each_process(jit):
    @jit
    def of_a_global(x):
        jax.debug.callback(log_with_time, x.sum())
        return x * 2

    def make(lines):
        def note(x):
            lines.append(float(x))

        @jit
        def of_a_closure(x):
            def body(carry, n):
                jax.debug.callback(note, n * carry)
                return carry + 1, jax.debug.callback(lambda v: lines.append(float(v)), carry, ordered=True)

            return jax.lax.scan(body, x.sum(), jnp.arange(3.0))[0]

        return of_a_closure

    del seen[1:]
    lines = [os.urandom(8)]
    values = of_a_global(X), make(lines)(X)
    jax.effects_barrier()
    return values, seen[1:], sorted(lines[1:])


def scaled(x):
    return x * LIMIT


def case_a_function_that_is_handed_over_and_called(jit):
    @jit
    def f(x):
        return (
            scaled(x) + jax.pure_callback(scaled, _like(x), x) + jax.jit(lambda x: jax.pure_callback(scaled, x, x))(x)
        )

    def make(factor):
        times = lambda x: x * factor
        return jit(lambda x: times(x) + jax.pure_callback(times, _like(x), x))

    return f(X), make(np.float32(3))(X)


def case_a_generator_that_goes_on(jit):
    numbers = iter(range(100))

    @jit
    def f(x):
        return x + io_callback(lambda: np.float32(next(numbers)), jax.ShapeDtypeStruct((), "float32"), ordered=True)

    return [f(X)[0] for _ in range(3)]


def case_a_host_environment(jit):
    """As in reinforcement learning: the state is in the process, each step is a callback."""

    class Env:
        def __init__(self):
            self.position = 0.0

        def step(self, action):
            self.position += float(action)
            return np.array([self.position, self.position**2], np.float32), np.float32(-abs(self.position - 3))

    env = Env()
    shapes = jax.ShapeDtypeStruct((2,), "float32"), jax.ShapeDtypeStruct((), "float32")

    @jit
    def rollout(policy):
        def body(observation, _):
            action = jnp.tanh(policy @ observation)
            observation, reward = io_callback(env.step, shapes, action, ordered=True)
            return observation, reward

        return jax.lax.scan(body, jnp.ones(2), None, length=20)

    return rollout(np.array([0.3, 0.1], np.float32)), env.position


class Writer:
    """Of lines, with the time, into something that no other process can have."""

    def __init__(self):
        self.text = io.StringIO()
        self.lock = threading.Lock()
        self.socket = socket.socket()

    def __call__(self, x):
        with self.lock:
            self.text.write(f"{float(x.sum())} at {time.time() > 0}\n")


def case_objects_of_this_process_alone(jit):
    writer, rows = Writer(), io.StringIO()
    table = csv.writer(rows)

    @jit
    def f(x):
        jax.debug.callback(writer, x)
        jax.debug.callback(lambda v: table.writerow([float(v[1]), os.getpid() > 0]), x)
        return x

    f(X), f(X + 1)
    jax.effects_barrier()
    return writer.text.getvalue(), rows.getvalue()


# ---- values that come back


def case_functions_of_numpy(jit):
    @jit
    def f(x):
        tall = jax.pure_callback(np.sin, _like(x), x, vmap_method="sequential")
        wide = jax.pure_callback(lambda v: np.outer(v, v), jax.ShapeDtypeStruct((4, 4), x.dtype), x)
        return tall, wide, jax.pure_callback(lambda: (np.int32(3), {"a": X}), (jnp.int32(0), {"a": _like(X)}))

    return f(X)


def case_dtypes(jit):
    @jit
    def f(x):
        found = []
        for dtype in ("bfloat16", "float16", "int8", "bool", "complex64", "uint32"):
            given = x.astype(dtype)
            found.append(io_callback(lambda v: v, _like(given), given))
        return found, io_callback(lambda v: v, jax.ShapeDtypeStruct((0, 3), "float32"), jnp.zeros((0, 3)))

    return f(X)


def case_large_arrays_both_ways(jit):
    @jit
    def f(x):
        return io_callback(lambda v: np.asarray(v)[::-1], _like(x), x)

    x = np.arange(300_000, dtype=np.float32).reshape(3, -1)
    found = f(f(x))
    return float(np.asarray(found).sum()), bool((np.asarray(f(x)) == x[::-1]).all())


def case_a_tree_that_numpy_searches(jit):
    """A distance to the nearest point, whose gradient is known though the search is not JAX's."""
    points = np.random.RandomState(0).uniform(size=(50, 3)).astype(np.float32)
    kd_tree = KDTree(points)

    @jax.custom_vjp
    def distance(x):
        return nearest(x)[0]

    def nearest(x):
        def search(v):
            found, index = kd_tree.query(np.asarray(v))
            return np.float32(found), points[index]

        shapes = jax.ShapeDtypeStruct((), "float32"), jax.ShapeDtypeStruct((3,), "float32")
        return jax.pure_callback(search, shapes, x, vmap_method="sequential")

    def forward(x):
        found, point = nearest(x)
        return found, (x, point, found)

    distance.defvjp(forward, lambda saved, g: (g * (saved[0] - saved[1]) / saved[2],))
    x = np.array([[0.2, 0.3, 0.4], [0.9, 0.1, 0.5]], np.float32)
    return jit(jax.vmap(jax.value_and_grad(distance)))(x)


# ---- libraries


def case_a_progress_bar(jit):
    bar = tqdm.tqdm(total=20, file=io.StringIO())

    @jit
    def f(x):
        def body(n, x):
            jax.lax.cond(n % 5 == 0, lambda: jax.debug.callback(lambda: bar.update(5), ordered=True), lambda: None)
            return x * 1.5

        return jax.lax.fori_loop(0, 20, body, x)

    values = f(X)
    jax.effects_barrier()
    return values, bar.n


def case_checks_of_checkify(jit):
    def f(x):
        checkify.check(jnp.all(x > 0), "there is a {smallest}", smallest=x.min())
        return jnp.log(x)

    checked = jit(checkify.checkify(f, errors=checkify.user_checks | checkify.float_checks))
    return [[error.get(), value] for error, value in (checked(X + 1), checked(X))]


def case_an_error_of_equinox(jit):
    @jit
    def f(x):
        return eqx.error_if(x, x.sum() > 10, "the sum is too large") * 2

    found = [f(X)]
    try:
        np.asarray(f(X * 10))
    except Exception as error:
        found.append("the sum is too large" in str(error))
    return found


# ---- nested, and from threads


def case_a_callback_that_calls(jit, device_put):
    inner = jit(lambda x: x * 2 + 1)
    held = device_put(X)

    def think(x):
        return np.asarray(inner(inner(np.asarray(x)))) + float(np.asarray(held).sum())

    @jit
    def f(x):
        return io_callback(think, _like(x), x)

    return [f(X), f(f(X))]


def case_a_callback_that_waits_for_a_thread(jit):
    inner = jit(lambda x: x * 3)

    def think(x):
        found = []
        thread = threading.Thread(target=lambda: found.append(np.asarray(inner(np.asarray(x)))))
        thread.start()
        thread.join()
        return found[0]

    return jit(lambda x: io_callback(think, _like(x), x))(X)


def case_what_a_callback_keeps(jit):
    kept = []
    inner = jit(lambda x: x + 1)

    @jit
    def f(x):
        jax.debug.callback(lambda v: kept.append(inner(np.asarray(v))), x)
        return x

    value = f(X)
    jax.effects_barrier()
    return value, kept[0], inner(kept[0])


# ---- errors


def _raised(f, *arguments):
    try:
        jax.block_until_ready(f(*arguments))
        jax.effects_barrier()
    except Exception as error:
        last = str(error).strip().splitlines()[-1]
        return type(error).__name__, last, "in fails" in str(error)
    return "nothing"


def case_a_callback_that_raises(jit):
    def fails(x):
        if x[0] > 0:
            raise ValueError(f"no such value: {x[0]}")
        return x

    f = jit(lambda x: io_callback(fails, _like(x), x) + 1)
    return [_raised(f, X + 1), f(X), _raised(f, X + 2), f(X)]


def case_results_that_do_not_fit(jit):
    wrong = {
        "shape": lambda x: np.ones(3, np.float32),
        "dtype": lambda x: np.ones(4, np.int32),
        "number": lambda x: (x, x),
        "nothing": lambda x: None,
    }
    return {name: _raised(jit(lambda x, fn=fn: io_callback(fn, _like(x), x)), X)[0] for name, fn in wrong.items()}


def case_a_look_at_shardings(jit):
    found = []

    @jit
    def f(x):
        jax.debug.inspect_array_sharding(x, callback=lambda sharding: found.append(type(sharding).__name__))
        return x + 1

    return f(X), found


class Trainer:
    def __init__(self, jit):
        self.lines = []
        self.scale = 2
        self.step = functools.partial(jit(Trainer._step, static_argnums=0), self)

    def log(self, x):
        self.lines.append(float(x))

    def _step(self, x):
        jax.debug.callback(self.log, x.sum())
        return x * self.scale


def case_a_method_of_a_static_argument(jit):
    trainer = Trainer(jit)
    values = trainer.step(X), trainer.step(X + 1)
    jax.effects_barrier()
    return values, trainer.lines


def case_stages(jit):
    compiled = jit(lambda x: io_callback(lambda v: np.asarray(v) + 1, x, x)).lower(X).compile()
    return compiled(X), compiled(compiled(X))


def case_donated_arguments(jit, device_put):
    seen = []
    f = jit(lambda x: (jax.debug.callback(lambda v: seen.append(np.asarray(v).copy()), x), x * 2)[1], donate_argnums=0)
    x = device_put(X)
    for _ in range(4):
        x = f(x)
    jax.effects_barrier()
    return x, seen


def case_keys_and_results_that_are_handles(jit):
    inner = jit(lambda x: x * 2)
    dtypes = []

    @jit
    def f(key, x):
        jax.debug.callback(lambda key: dtypes.append(str(key.dtype)), key)
        return jax.random.normal(key, (2,)), io_callback(lambda v: inner(np.asarray(v)), x, x)

    values = f(jax.random.key(3), X)
    jax.effects_barrier()
    return values, dtypes


# ---- values that a trace leaves behind


def case_a_value_that_an_earlier_trace_left_is_not_met_by_another(jit):
    class Box:
        value = None

    def made():
        box = Box()

        def f(x):
            if box.value is None:
                box.value = x * 2
            return x + box.value

        return f

    once, shown, abstract, again = made(), made(), made(), made()
    jax.make_jaxpr(shown)(X)
    jax.eval_shape(abstract, X)
    jit(again)(X)
    return [jit(each)(X) for each in (once, shown, abstract, again)]


LOCAL = ["case_a_look_at_shardings"]
SAID = ["case_a_print_in_the_body"]
WARM = [
    "case_a_method_of_a_static_argument",
    "case_stages",
    "case_donated_arguments",
    "case_keys_and_results_that_are_handles",
    "case_a_print",
    "case_prints_in_the_order_of_a_scan",
    "case_prints_under_cond_while_and_vmap",
    "case_prints_of_a_gradient",
    "case_prints_with_numpys_options",
    "case_a_live_list",
    "case_objects_with_state",
    "case_objects_of_this_process_alone",
    "case_a_closure_of_the_trace",
    "case_a_logger_whose_values_differ_in_each_process",
    "case_a_function_that_is_handed_over_and_called",
    "case_a_generator_that_goes_on",
    "case_a_host_environment",
    "case_functions_of_numpy",
    "case_dtypes",
    "case_large_arrays_both_ways",
    "case_a_progress_bar",
    "case_checks_of_checkify",
    "case_an_error_of_equinox",
    "case_a_callback_that_calls",
    "case_a_callback_that_waits_for_a_thread",
    "case_what_a_callback_keeps",
    "case_a_callback_that_raises",
    "case_results_that_do_not_fit",
]
