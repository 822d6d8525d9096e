"""Orbax saves and restores trees of arrays on the daemon as it does arrays of JAX's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jitclient

ocp = pytest.importorskip("orbax.checkpoint")

pytestmark = [
    pytest.mark.usefixtures("daemon"),
    pytest.mark.filterwarnings("ignore:Sharding info not provided:UserWarning"),
]


def parameters() -> dict[str, Any]:
    return {
        "w": jax.random.normal(jax.random.key(0), (4, 3)),
        "low": jnp.ones(2, jnp.bfloat16),
        "step": jnp.int32(3),
        "weak": jnp.asarray(2.5),
    }


def standard(folder: Path, tree: Any) -> Any:
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", tree)
        checkpointer.wait_until_finished()
        targets = (
            tree,
            jax.tree.map(ocp.utils.to_shape_dtype_struct, tree),
            jax.eval_shape(lambda values: values, tree),
        )
        return checkpointer.restore(folder / "a"), [checkpointer.restore(folder / "a", target) for target in targets]


def pytree(folder: Path, tree: Any) -> Any:
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(folder / "a", tree)
    how = ocp.checkpoint_utils.construct_restore_args(tree)
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return [checkpointer.restore(folder / "a", item=tree, restore_args=args) for args in (how, as_numpy, None)]


def with_arguments(folder: Path, tree: Any) -> Any:
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    save_args = jax.tree.map(lambda _: ocp.SaveArgs(dtype=np.dtype(np.float32)), tree)
    checkpointer.save(folder / "a", args=ocp.args.PyTreeSave(tree, save_args=save_args))
    return checkpointer.restore(folder / "a", args=ocp.args.PyTreeRestore(tree))


def own_registry(folder: Path, tree: Any) -> Any:
    registry = ocp.type_handlers.create_type_handler_registry((jax.Array, ocp.type_handlers.ArrayHandler()))
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(type_handler_registry=registry))
    checkpointer.save(folder / "a", args=ocp.args.PyTreeSave(tree))
    return checkpointer.restore(folder / "a", args=ocp.args.PyTreeRestore(tree))


def manager(folder: Path, tree: Any) -> Any:
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=True, best_fn=lambda m: m["loss"])
    with ocp.CheckpointManager(folder / "m", options=options) as steps:
        for n in range(3):
            saved = ocp.args.Composite(state=ocp.args.StandardSave(tree), more=ocp.args.JsonSave({"n": n}))
            steps.save(n, args=saved, metrics={"loss": float(tree["weak"] * n)})
        steps.wait_until_finished()
        wanted = ocp.args.Composite(state=ocp.args.StandardRestore(tree), more=ocp.args.JsonRestore())
        found = steps.restore(steps.best_step(), args=wanted)
        return steps.all_steps(), found.state, found.more


def nnx_state(folder: Path, tree: Any) -> Any:
    abstract = nnx.state(nnx.eval_shape(lambda: nnx.Linear(4, 3, rngs=nnx.Rngs(0))))
    state = nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(0)))
    if isinstance(tree["w"], jitclient.Array):
        state = jax.tree.map(jitclient.device_put, state)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", state)
        checkpointer.wait_until_finished()
        return nnx.to_pure_dict(checkpointer.restore(folder / "a", abstract))


def key(folder: Path, tree: Any) -> Any:
    saved = {"key": jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32))}
    if isinstance(tree["w"], jitclient.Array):
        saved = jax.tree.map(jitclient.device_put, saved)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", saved)
        checkpointer.wait_until_finished()
        return jax.random.key_data(checkpointer.restore(folder / "a", saved)["key"])


WAYS = (standard, pytree, with_arguments, own_registry, manager, nnx_state, key)


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way is standard else pytest.mark.slow) for way in WAYS])
def test_it_restores_what_it_does_for_arrays_of_jax(tmp_path: Path, way: Callable[..., Any]) -> None:
    plain = parameters()
    ours = jax.tree.map(jitclient.device_put, plain)
    found, expected = [
        jax.tree.map(described, way(tmp_path / name, tree)) for name, tree in {"ours": ours, "plain": plain}.items()
    ]
    assert found == expected


def described(leaf: Any) -> Any:
    return type(leaf).__name__, str(getattr(leaf, "dtype", "")), np.asarray(leaf).tolist()


SHARDED = """
import json, pathlib, sys, warnings
import numpy as np
import jitclient

early = jitclient.device_put(np.arange(3.0, dtype=np.float32))  # before jax is imported
import jax
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

warnings.simplefilter("ignore")
rows = NamedSharding(jax.make_mesh((8,), ("x",)), PartitionSpec("x"))
plain = jax.device_put(np.arange(16.0, dtype=np.float32).reshape(8, 2), rows)
found = []
for tree in ({"w": plain, "e": jax.numpy.asarray(early)}, {"w": jitclient.device_put(plain, rows), "e": early}):
    folder = pathlib.Path(f"{len(found)}").absolute()
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, tree)
        checkpointer.wait_until_finished()
        about = str(checkpointer.metadata(folder).item_metadata.tree).replace(str(folder), "")
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
        back = [checkpointer.restore(folder, target), checkpointer.restore(folder)]
    assert all(one["w"].sharding == rows for one in back)
    found.append([about, [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(back)]])
print(json.dumps(found))
"""


def test_it_saves_and_restores_shards(own: Any) -> None:
    eight = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    with own.serving(**eight):
        plain, ours = own.run(SHARDED, **eight)
    assert ours == plain
