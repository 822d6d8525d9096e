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
