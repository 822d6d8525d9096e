"""The main promise, with a real model: the second process finds everything made, and an edit is never missed."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HELPERS = """
    import jax
    import jax.numpy as jnp

    SCALE = 1.0

    def normalize(x):
        return SCALE * (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(layer, x):
        b, t, d = x.shape
        h = normalize(x)
        q, k, v = (jnp.reshape(h @ layer[n], (b, t, 4, -1)) for n in "qkv")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // 4) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
        x = x + jnp.reshape(mixed, (b, t, d)) @ layer["o"]
        return x + jax.nn.gelu(normalize(x) @ layer["up"]) @ layer["down"]
"""

PROGRAM = """
    import hashlib, json, sys
    import jax, jax.numpy as jnp, numpy as np
    import jitclient, helpers

    LAYERS, WIDTH = int(sys.argv[1]), 64

    def loss_of(params, tokens):
        x = params["embed"][tokens[:, :-1]]
        for layer in params["layers"]:
            x = helpers.block(layer, x)
        logits = jax.nn.log_softmax(x @ params["embed"].T)
        return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))

    @jitclient.jit
    def train_step(params, tokens):
        loss, grads = jax.value_and_grad(loss_of)(params, tokens)
        return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), loss

    random = np.random.default_rng(0)
    def matrix(*shape):
        return random.normal(0, shape[0] ** -0.5, shape).astype(np.float32)
    sizes = {n: (WIDTH, WIDTH) for n in "qkvo"} | {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    params = {"embed": matrix(128, WIDTH), "layers": [{n: matrix(*s) for n, s in sizes.items()} for _ in range(LAYERS)]}
    tokens = random.integers(0, 128, (2, 33)).astype(np.int32)

    losses = []
    for _ in range(3):
        params, loss = train_step(params, tokens)
        losses.append(float(loss))
    leaves = jax.tree.leaves(jitclient.device_get(params))
    print(json.dumps([losses, hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()]))
"""

COUNTED = ("captures_loaded", "traces", "compiles", "misses", "hits", "client_traces", "local_runs")


@pytest.fixture
def run(
    tmp_path: Path, daemon: str, run_script: Callable[..., Any], counts: Callable[..., dict[str, Any]]
) -> Callable[..., tuple[Any, dict[str, int]]]:
    """Runs the program in a fresh process; returns what it printed, and what the daemon counted meanwhile."""

    def go(helpers: str = HELPERS, program: str = PROGRAM, layers: int = 2) -> tuple[Any, dict[str, int]]:
        (tmp_path / "helpers.py").write_text(textwrap.dedent(helpers))
        before = counts()
        printed = run_script(program, str(layers))
        after = counts()
        return printed, {name: after[name] - before[name] for name in COUNTED}

    return go


NOTHING = dict.fromkeys(COUNTED, 0)
MADE = {**NOTHING, "captures_loaded": 1, "traces": 1, "compiles": 1, "misses": 1}
FOUND = {**NOTHING, "hits": 1}


def with_plain_jax(program: str) -> str:
    return program.replace("@jitclient.jit", "@jax.jit").replace("jitclient.device_get", "jax.device_get")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_second_process_finds_it_made_and_an_edited_helper_is_noticed(run: Callable[..., Any]) -> None:
    first, counted = run()
    assert counted == MADE

    again, counted = run()
    assert counted == FOUND
    assert again == first, "a rerun computes the same, bit for bit"

    edited_helpers = HELPERS.replace("1e-5", "1e-2")
    edited, counted = run(edited_helpers)
    assert counted == MADE
    assert edited != first

    plain, counted = run(edited_helpers, with_plain_jax(PROGRAM))
    assert counted == NOTHING
    assert edited == plain, "what it computes after the edit is what jax computes"

    back, counted = run()
    assert counted == FOUND, "what was undone is found again"
    assert back == first


def test_what_changes_nothing_is_found_and_what_changes_anything_is_not(run: Callable[..., Any]) -> None:
    first, counted = run(layers=1)
    assert counted == MADE, "the same function on a smaller tree"

    moved = "# a comment\n\n" + textwrap.dedent(PROGRAM).replace("loss,", "value,").replace(", loss\n", ", value\n", 1)
    commented = HELPERS.replace("def normalize", "# moved\n\n    def normalize")
    still, counted = run(commented, moved, layers=1)
    assert counted == FOUND, "comments, moved lines and renamed locals"
    assert still == first

    rescaled, counted = run(HELPERS.replace("SCALE = 1.0", "SCALE = 0.5"), layers=1)
    assert counted == MADE, "a global of a helper's module"
    assert rescaled[0] != first[0]

    _, counted = run(program=PROGRAM.replace("0.05 * g", "0.06 * g"), layers=1)
    assert counted == MADE, "a constant in the function itself"


UNOBSERVED = """
    import json, jitclient, sympy

    @jitclient.jit
    def third(x):
        return x * float(sympy.Rational(1, 3))

    print(json.dumps(float(third(6.0))))
"""


def test_trace_that_cannot_be_observed_adds_no_program_per_run(
    run: Callable[..., Any], counts: Callable[[], dict[str, int]]
) -> None:
    pytest.importorskip("sympy")
    assert run(program=UNOBSERVED)[0] == 2.0
    before = counts()["disk_bytes"], counts()["entries"]
    for _ in range(2):
        value, counted = run(program=UNOBSERVED)
        assert (value, counted["hits"]) == (2.0, 0)
    assert (counts()["disk_bytes"], counts()["entries"]) == before
