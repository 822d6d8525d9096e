"""Programs that run on the platform in tests/other_platform, and on GPUs."""

TWO_DEVICES = """
    import functools, json, jax, numpy as np, jitclient
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    first, second = jax.devices()
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    parts = NamedSharding(mesh, PartitionSpec("d"))

    @jitclient.jit
    def plain(x):
        return x * 2

    @jitclient.jit
    def constrained(x):
        return jax.lax.with_sharding_constraint(x * 2, parts)

    @jitclient.jit
    def moved(x):
        return jax.device_put(x * 2, second)

    @functools.partial(jitclient.jit, out_shardings=parts)
    def placed(x):
        return x * 2

    x = np.arange(8, dtype=np.float32)
    on_second = jitclient.device_put(x, second)
    made = [plain(on_second), constrained(x), moved(on_second), placed(x)]
    where = [sorted(device.id for device in each.sharding.device_set) for each in made]
    print(json.dumps([where, [np.asarray(each).tolist() for each in made]]))
"""
"""Puts arrays on each of two devices; prints where the results are, as positions, and their values."""

OVERWRITES = """
    import functools, json, numpy as np, jitclient

    @jitclient.jit
    def total(x, y):
        return x.sum() + y

    @functools.partial(jitclient.jit, donate_argnums=0)
    def shifted(x):
        return x + 1

    small, large, made = np.zeros(16, np.float32), np.zeros(100_000, np.float32), []
    for n in range(5):
        small[:], large[:] = n, n
        kept = jitclient.keep(f"kept {n}", {"large": large})["large"]
        made.append((total(large, small), total(small, small), shifted(large), jitclient.device_put(large), kept))
    small[:], large[:] = -1, -1
    print(json.dumps([[float(np.asarray(each).max()) for each in of_one] for of_one in made]))
"""
"""Overwrites each argument at once after its call; prints the values of the results."""

FILLS = """
    import json, sys, jax, numpy as np, jitclient

    nbytes = int(sys.argv[1]) << 20

    @jitclient.jit
    def full(n):
        return jax.numpy.full(nbytes, n, np.int8)

    made = []
    try:
        while True:
            made.append(full(jitclient.device_put(np.int8(len(made)))).block_until_ready())
    except Exception as error:
        values = [int(np.asarray(each)[-1]) for each in made]
        print(json.dumps([values, *str(error).partition(":")[::2], *getattr(error, "__notes__", [])]))
"""
"""Makes arrays until none fits; prints their values, and the error with its notes."""

TRAINING = """
    import json, pathlib, sys
    from jax.profiler import ProfileData, StepTraceAnnotation, start_trace, stop_trace  # before jitclient
    import jax
    import jax.numpy as jnp
    import numpy as np

    if sys.argv[1] == "ours":
        import jitclient
        jitclient.install()

    @jax.jit
    def train(w, x, y):
        def loss_of(w):
            return jnp.mean((jnp.tanh(x @ w["in"]) @ w["out"] - y) ** 2)
        loss, gradient = jax.value_and_grad(loss_of)(w)
        return jax.tree.map(lambda w, g: w - 0.1 * g, w, gradient), loss

    random = np.random.default_rng(0)
    w = {"in": random.normal(size=(8, 16)).astype("f4"), "out": random.normal(size=(16,)).astype("f4")}
    x, y = random.normal(size=(32, 8)).astype("f4"), random.normal(size=32).astype("f4")
    w, loss = train(w, x, y)
    jax.block_until_ready(loss)
    start_trace(sys.argv[1])
    for number in range(3):
        with StepTraceAnnotation("training", step_num=number):
            w, loss = train(w, x, y)
    jax.block_until_ready(loss)
    stop_trace()

    events = [
        (path.name, event.name, dict(event.stats))
        for path in pathlib.Path(sys.argv[1]).rglob("*.xplane.pb")
        for plane in ProfileData.from_file(str(path)).planes
        for line in plane.lines
        for event in line.events
    ]
    steps = sorted((path, stats["step_num"]) for path, name, stats in events if name == "training")
    operations = sorted({(path, name) for path, name, stats in events if stats.get("hlo_module") == "jit_train"})
    print(json.dumps([len({path for path, *_ in events}), steps, operations]))
"""
"""Trains a network, plain or `ours`, under JAX's profiler; prints hosts, steps and operations of the profile."""
