"""Programs that raise an exception, by name."""

CASES = {
    # ---- wrong shapes and dtypes in a trace
    "shapes of an addition": "jax.jit(lambda x, y: x + y)(jnp.ones(3), jnp.ones(4))",
    "shapes of a product": "jax.jit(lambda x, y: x @ y)(jnp.ones((2, 3)), jnp.ones((2, 3)))",
    "a reshape": "jax.jit(lambda x: x.reshape(2, 2))(jnp.ones(3))",
    "an axis": "jax.jit(lambda x: x.sum(axis=2))(jnp.ones(3))",
    "einsum": "jax.jit(lambda x: jnp.einsum('ij,jk', x))(jnp.ones((2, 2)))",
    "concatenate": "jax.jit(lambda x: jnp.concatenate([x, jnp.ones((2, 2))]))(jnp.ones(3))",
    "stack": "jax.jit(lambda x, y: jnp.stack([x, y]))(jnp.ones(3), jnp.ones(4))",
    "a dtype": "jax.jit(lambda x: lax.add(x, jnp.ones(3, jnp.int32)))(jnp.ones(3))",
    "the name of a dtype": "jax.jit(lambda x: x.astype('float7'))(jnp.ones(3))",
    "a static index": "jax.jit(lambda x: lax.index_in_dim(x, 7))(jnp.ones(3))",
    "too many indices": "jax.jit(lambda x: x[0, 0])(jnp.ones(3))",
    "an update": "jax.jit(lambda x: x.at[:2].set(jnp.ones(3)))(jnp.ones(3))",
    "a convolution": "jax.jit(lambda x: lax.conv(x, jnp.ones((1, 2, 3, 3)), (1, 1), 'SAME'))(jnp.ones((1, 1, 8, 8)))",
    "cholesky": "jax.jit(jnp.linalg.cholesky)(jnp.ones((2, 3)))",
    "solve": "jax.jit(jnp.linalg.solve)(jnp.ones((2, 2)), jnp.ones(3))",
    "a random key": "jax.jit(lambda k: jax.random.normal(k))(jnp.ones(3))",
    "a split": "jax.jit(lambda x: jnp.split(x, 2))(jnp.ones(3))",
    # ---- concrete values of tracers
    "a branch": "jax.jit(lambda x: 1 if x > 0 else 2)(1.0)",
    "a float": "jax.jit(lambda x: float(x))(1.0)",
    "a range": "jax.jit(lambda x: [x for _ in range(x)])(3)",
    "numpy": "jax.jit(lambda x: np.sin(x))(jnp.ones(3))",
    "a mask": "jax.jit(lambda x: x[x > 0])(jnp.ones(3))",
    "where of one argument": "jax.jit(lambda x: jnp.where(x > 0))(jnp.ones(3))",
    "unique": "jax.jit(jnp.unique)(jnp.ones(3))",
    "a shape": "jax.jit(lambda n: jnp.zeros(n))(3)",
    "arange": "jax.jit(lambda n: jnp.arange(n))(3)",
    "an index of a list": "jax.jit(lambda n: [1, 2, 3][n])(1)",
    "an assignment": "def f(x):\n    x[0] = 1\n    return x\njax.jit(f)(jnp.ones(3))",
    "a leaked tracer": "kept = []\njax.jit(lambda x: kept.append(x))(1.0)\nkept[0] + 1",
    # ---- arguments
    "a string": "jax.jit(lambda x: x)('a')",
    "an object": "jax.jit(lambda x: x)(object())",
    "a set": "jax.jit(lambda x: x)({1, 2})",
    "a large integer": "jax.jit(lambda x: x + 1)(1 << 80)",
    "a missing argument": "jax.jit(lambda x, y: x)(1.0)",
    "one argument too many": "jax.jit(lambda x: x)(1.0, 2.0)",
    "an unknown keyword": "jax.jit(lambda x: x)(1.0, y=2.0)",
    "an unhashable static argument": "jax.jit(lambda x, n: x, static_argnums=1)(1.0, [1])",
    "a static array": "jax.jit(lambda x, n: x, static_argnums=1)(1.0, jnp.ones(3))",
    "a static argument that is not there": "jax.jit(lambda x: x, static_argnums=3)(1.0)",
    "the name of a static argument": "jax.jit(lambda x: x, static_argnames='y')(1.0)",
    "no function": "jax.jit(3)",
    "a generator": "jax.jit(lambda x: (yield x))(1.0)",
    "an unhashable dictionary key": "jax.jit(lambda x: x)({1: 1.0, 'a': 2.0})",
    # ---- results
    "a result that is no array": "jax.jit(lambda x: 'a')(1.0)",
    "a result that is a function": "jax.jit(lambda x: len)(1.0)",
    # ---- errors of the user's own
    "a ValueError": "def f(x):\n    raise ValueError('of the user', 3)\njax.jit(f)(1.0)",
    "a KeyError": "jax.jit(lambda x: {}[3])(1.0)",
    "an AttributeError": "jax.jit(lambda x: x.nothing)(1.0)",
    "a NameError": "jax.jit(lambda x: nothing)(1.0)",
    "an assertion": "def f(x):\n    assert x.shape == (4,), 'four of them'\njax.jit(f)(jnp.ones(3))",
    "a class of the user's own": "class Own(Exception):\n    pass\ndef f(x):\n    raise Own('mine')\njax.jit(f)(1.0)",
    "a recursion": "def f(x):\n    return f(x)\njax.jit(f)(1.0)",
    "an error with a cause": (
        "def f(x):\n"
        "    try:\n"
        "        {}[3]\n"
        "    except KeyError as e:\n"
        "        raise RuntimeError('later') from e\n"
        "jax.jit(f)(1.0)"
    ),
    "an exit": "import sys\njax.jit(lambda x: sys.exit(3))(1.0)",
    # ---- control flow and transformations
    "the carry of a scan": "jax.jit(lambda x: lax.scan(lambda c, _: (c[:2], c), x, None, length=3))(jnp.ones(3))",
    "the length of a scan": "jax.jit(lambda x: lax.scan(lambda c, e: (c, e), 0, x, length=7))(jnp.ones(3))",
    "the branches of a cond": "jax.jit(lambda x: lax.cond(x > 0, lambda: 1, lambda: 2.0))(1.0)",
    "the type of a loop's state": "jax.jit(lambda x: lax.while_loop(lambda c: c < 3, lambda c: (c, c), x))(1.0)",
    "the condition of a loop": "jax.jit(lambda x: lax.while_loop(lambda c: 1.0, lambda c: c, x))(1.0)",
    "the axes of vmap": "jax.jit(jax.vmap(lambda x, y: x + y))(jnp.ones(3), jnp.ones(4))",
    "vmap of a scalar": "jax.jit(jax.vmap(lambda x: x))(1.0)",
    "the gradient of a vector": "jax.jit(jax.grad(lambda x: x))(jnp.ones(3))",
    "the gradient of an integer": "jax.jit(jax.grad(lambda x: x * 2.0))(3)",
    "a gradient of a loop": "jax.jit(jax.grad(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c * 2, x)))(1.0)",
    "the tangent of jvp": "jax.jit(lambda x: jax.jvp(jnp.sin, (x,), (jnp.ones(4),)))(jnp.ones(3))",
    "a custom gradient without a rule": "@jax.custom_vjp\ndef f(x):\n    return x\njax.jit(jax.grad(f))(1.0)",
    "an unknown axis name": "jax.jit(lambda x: lax.psum(x, 'i'))(1.0)",
    "trees of different structure": "jax.jit(lambda x: jax.tree.map(lambda a, b: a + b, (x, x), (x,)))(1.0)",
    # ---- arrays that a call returned
    "the truth of many": "bool(jax.jit(lambda x: x)(jnp.ones(3)))",
    "a float of many": "float(jax.jit(lambda x: x)(jnp.ones(3)))",
    "an index of a float": "[1, 2, 3][jax.jit(lambda x: x)(1.0)]",
    "a hash": "hash(jax.jit(lambda x: x)(jnp.ones(3)))",
    "the length of a number": "len(jax.jit(lambda x: x)(1.0))",
    "iteration over a number": "list(jax.jit(lambda x: x)(1.0))",
    "an assignment to a result": "jax.jit(lambda x: x)(jnp.ones(3))[0] = 1",
    "an attribute of a result": "jax.jit(lambda x: x)(jnp.ones(3)).nothing",
    "a result and a string": "jax.jit(lambda x: x)(jnp.ones(3)) + 'a'",
    "shapes of two results": "f = jax.jit(lambda x: x)\nf(jnp.ones(3)) + f(jnp.ones(4))",
    "an index of a result": "jax.jit(lambda x: x)(jnp.ones(3))[0, 0]",
    "a string as an index": "jax.jit(lambda x: x)(jnp.ones(3))['a']",
    "a reshape of a result": "jax.jit(lambda x: x)(jnp.ones(3)).reshape(2, 2)",
    "item of many": "jax.jit(lambda x: x)(jnp.ones(3)).item()",
    "numpy of a key": "np.asarray(jax.jit(jax.random.key)(0))",
    "a deleted array": "x = jax.jit(lambda x: x + 1)(jnp.ones(3))\nx.delete()\nnp.asarray(x)",
    "a donated array": "x = jnp.ones(3)\njax.jit(lambda x: x + 1, donate_argnums=0)(x)\nnp.asarray(x)",
    "a donated result": "f = jax.jit(lambda x: x + 1, donate_argnums=0)\nx = f(jnp.ones(3))\nf(x)\nnp.asarray(x)",
    "a donated array as an argument": (
        "f = jax.jit(lambda x: x + 1, donate_argnums=0)\nx = f(jnp.ones(3))\nf(x)\nf(x)"
    ),
    "an array donated twice": (
        "x = jax.jit(lambda x: x + 1)(jnp.ones(3))\njax.jit(lambda x, y: (x + 1, y + 1), donate_argnums=(0, 1))(x, x)"
    ),
    # ---- memory and values
    "no memory": "jax.jit(lambda x: jnp.zeros((1 << 45,)) + x)(1.0).block_until_ready()",
    "a NaN": "with jax.debug_nans(True):\n    jax.jit(lambda x: jnp.log(x - 2))(1.0).block_until_ready()",
    "an infinity": "with jax.debug_infs(True):\n    jax.jit(lambda x: 1 / x)(jnp.float32(0)).block_until_ready()",
    "an implicit transfer": (
        "f = jax.jit(lambda x: x)\nf(np.ones(3))\nwith jax.transfer_guard('disallow'):\n    f(np.ones(3))"
    ),
    "promotion": (
        "with jax.numpy_dtype_promotion('strict'):\n    jax.jit(lambda x: x + jnp.ones(3, jnp.int8))(jnp.ones(3))"
    ),
    # ---- stages, devices, callbacks
    "other shapes of a compiled stage": "jax.jit(lambda x: x).lower(jnp.ones(3)).compile()(jnp.ones(4))",
    "another tree of a compiled stage": "jax.jit(lambda x: x).lower(jnp.ones(3)).compile()((jnp.ones(3),))",
    "too many devices": "jax.make_mesh((64,), ('x',))",
    "a callback that raises": (
        "def host(x):\n"
        "    raise ValueError('on the host')\n"
        "jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(host, x, x))(1.0))"
    ),
    "a callback of another shape": (
        "jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(lambda x: np.ones(4, np.float32), "
        "jax.ShapeDtypeStruct((3,), np.float32), x))(1.0))"
    ),
    "checkify": (
        "from jax.experimental import checkify\n"
        "err, _ = jax.jit(checkify.checkify(lambda x: checkify.check(x > 2, 'too small')))(1.0)\n"
        "err.throw()"
    ),
}
