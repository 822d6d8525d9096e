"""Kinds of functions made with JAX and its libraries; see `kinds_plain.py`."""

_HEAD = "import jax\nimport jax.numpy as jnp\nimport numpy as np\n\n"


def _kind(source, *edits, **more):
    return dict(source=_HEAD + source, edits=list(edits), **more)


KINDS = {
    "captured_arrays": _kind(
        "W = np.arange(4.0)\nB = jnp.ones(4) * 9\nH = np.ones(4, jnp.bfloat16)\nS = np.float32(2.5)\n"
        "\ndef fn(x):\n    return x * W + B + H.astype(np.float32) * S\n",
        ("* 9", "* 8"),
        ("np.arange(4.0)", "np.arange(4.0) + 1"),
        ("2.5", "2.25"),
    ),
    "weak_types": _kind(
        "W = jnp.asarray(9.0)\nV = jax.lax.broadcast(2.0, (4,))\n\n"
        "def fn(x):\n    return x.astype(jnp.bfloat16) * W * V\n",
        ("9.0", "8.0"),
        ("asarray(9.0)", "asarray(np.float32(9.0))"),
    ),
    "prng_keys": _kind(
        "KEY = jax.random.key(9)\nOLD = jax.random.PRNGKey(1)\n\n"
        "def fn(x):\n    return x + jax.random.normal(KEY, (4,)) + jax.random.uniform(OLD, (4,))\n",
        ("key(9)", "key(8)"),
        ("key(9)", "key(9, impl='rbg')"),
    ),
    "dtypes_and_devices": _kind(
        "D = jnp.dtype('bfloat16')\nE = np.dtype([('a', 'f4'), ('b', 'i8')])\nF = jnp.float32\n"
        "DEV = jax.devices()[0]\n\n"
        "def fn(x):\n    return x.astype(D).astype(F) * len(E.names) + (DEV.platform == 'cpu')\n",
        ("'bfloat16'", "'float16'"),
        ("('b', 'i8')", "('c', 'i8')"),
    ),
    "jit_inside": _kind(
        "def base(x, n):\n    return x * n\n\ninner = jax.jit(base, static_argnums=1)\n"
        "loose = jax.jit(lambda x: x + 9.0, inline=True)\n\ndef fn(x):\n    return loose(inner(x, 3))\n",
        ("9.0", "8.0"),
        ("static_argnums=1)", "static_argnums=1, keep_unused=True)"),
        ("inline=True", "inline=False"),
    ),
    "jit_outside": _kind(
        "@jax.jit\ndef fn(x):\n    '''DOC'''\n    local_v = x * 9.0\n    return local_v\n",
        ("9.0", "8.0"),
    ),
    "vmap_and_grad": _kind(
        "def loss(x):\n    return jnp.sin(x * 9.0).sum()\n\nbatched = jax.vmap(lambda v: v * 2)\n"
        "slope = jax.grad(loss)\n\ndef fn(x):\n    return batched(slope(x))\n",
        ("9.0", "8.0"),
        ("v * 2", "v * 3"),
    ),
    "custom_vjp": _kind(
        "@jax.custom_vjp\ndef f(x):\n    return x * 2\n\ndef fwd(x):\n    return f(x), x\n\n"
        "def bwd(res, g):\n    return (g * 9.0,)\n\nf.defvjp(fwd, bwd)\n\n"
        "def fn(x):\n    return jax.grad(lambda x: f(x).sum())(x)\n",
        ("9.0", "8.0"),
        ("x * 2", "x * 3"),
    ),
    "custom_jvp": _kind(
        "@jax.custom_jvp\ndef f(x):\n    return x * 2\n\n@f.defjvp\ndef _(primals, tangents):\n"
        "    return f(primals[0]), tangents[0] * 9.0\n\n"
        "def fn(x):\n    return jax.grad(lambda x: f(x).sum())(x)\n",
        ("9.0", "8.0"),
    ),
    "checkpoint_": _kind(
        "@jax.checkpoint\ndef block(x):\n    return jnp.sin(x) * 9.0\n\n"
        "def fn(x):\n    return jax.grad(lambda x: block(x).sum())(x)\n",
        ("9.0", "8.0"),
    ),
    "scan_and_cond": _kind(
        "def step(c, _):\n    return c * 9.0, None\n\ndef fn(x):\n"
        "    out, _ = jax.lax.scan(step, x, None, length=3)\n"
        "    return jax.lax.cond(out.sum() > 0, lambda v: v + 1, lambda v: v, out)\n",
        ("9.0", "8.0"),
        ("length=3", "length=2"),
    ),
    "tree_definitions": _kind(
        "TREE = jax.tree.structure({'a': 1, 'b': (2, None, [3])})\n"
        "PART = jax.tree_util.Partial(lambda k, x: x * k, 9.0)\n\n"
        "def fn(x):\n    return PART(x) + jax.tree.unflatten(TREE, [x, x, x])['b'][2][0]\n",
        ("9.0", "8.0"),
        ("[3]", "(3,)"),
    ),
    "register_dataclass": _kind(
        "import dataclasses\n\n@jax.tree_util.register_dataclass\n@dataclasses.dataclass\n"
        "class S:\n    w: jax.Array\n"
        "    n: int = dataclasses.field(default=9, metadata={'static': True})\n\n"
        "s = S(jnp.ones(4))\n\n"
        "def fn(x):\n    t = jax.tree.map(lambda v: v * 2, s)\n    return x * t.w * t.n\n",
        ("default=9", "default=8"),
        ("jnp.ones(4)", "jnp.zeros(4)"),
    ),
    "register_node_class": _kind(
        "@jax.tree_util.register_pytree_node_class\nclass P:\n    def __init__(self, w, k):\n"
        "        self.w, self.k = w, k\n    def tree_flatten(self):\n"
        "        return (self.w,), self.k\n    @classmethod\n"
        "    def tree_unflatten(cls, k, children):\n        return cls(*children, k)\n\n"
        "p = P(jnp.ones(4), 9.0)\n\n"
        "def fn(x):\n    q = jax.tree.map(lambda v: v + 1, p)\n    return x * q.w * q.k\n",
        ("9.0", "8.0"),
        ("(self.w,), self.k", "(self.w * 2,), self.k"),
    ),
    "register_node": _kind(
        "class P:\n    def __init__(self, w, k):\n        self.w, self.k = w, k\n\n"
        "jax.tree_util.register_pytree_node(\n    P, lambda p: ((p.w,), p.k), lambda k, c: P(c[0], k)\n)\n"
        "\nclass Q:\n    def __init__(self, w):\n        self.w = w\n\n"
        "jax.tree_util.register_pytree_with_keys(\n"
        "    Q, lambda q: (((jax.tree_util.GetAttrKey('w'), q.w),), None), lambda _, c: Q(*c)\n)\n"
        "\n@jax.tree_util.register_static\nclass Static(str):\n    pass\n\n"
        "def fn(x):\n    p = jax.tree.map(lambda v: v + 1, P(x, 9.0))\n"
        "    q = jax.tree.map(lambda v: v * 3, Q(x))\n"
        "    names = [str(k) for k, _ in jax.tree_util.tree_flatten_with_path(q)[0]]\n"
        "    return p.w * p.k + q.w + len(names[0]) + len(jax.tree.leaves(Static('a')))\n",
        ("9.0", "8.0"),
        ("P(c[0], k)", "P(c[0] * 2, k)"),
        ("GetAttrKey('w')", "GetAttrKey('ww')"),
    ),
    "flax_struct": _kind(
        "from flax import struct\n\n@struct.dataclass\nclass S:\n    w: jax.Array\n"
        "    k: float = struct.field(pytree_node=False, default=9.0)\n"
        "    def run(self, x):\n        return x * self.w * self.k\n\n"
        "class T(struct.PyTreeNode):\n    v: jax.Array\n\n"
        "s = S(jnp.ones(4))\nt = T(v=jnp.ones(4))\n\n"
        "def fn(x):\n    u = jax.tree.map(lambda a: a * 2, (s, t))\n"
        "    return u[0].replace(k=3.0).run(x) + s.run(x) + u[1].v\n",
        ("9.0", "8.0"),
        ("x * self.w", "x + self.w"),
        ("T(v=jnp.ones(4))", "T(v=jnp.zeros(4))"),
    ),
    "chex_dataclass": _kind(
        "import chex\n\n@chex.dataclass\nclass S:\n    w: chex.Array\n    k: float = 9.0\n\n"
        "s = S(w=jnp.ones(4))\n\n"
        "def fn(x):\n    t = jax.tree.map(lambda v: v * 2, s)\n    return x * t.w * t.k + s['k']\n",
        ("9.0", "8.0"),
    ),
    "equinox_module": _kind(
        "import equinox as eqx\nfrom typing import ClassVar\n\n"
        "class Linear(eqx.Module):\n    '''DOC'''\n    w: jax.Array\n"
        "    k: float = eqx.field(static=True, default=9.0)\n    c: ClassVar[float] = 1.0\n    d: float = 2.0\n"
        "    def __call__(self, x):\n        return x * self.w * self.k + self.c + self.d\n\nLinear.c = 7.0\n\n"
        "class Own(Linear):\n    d = 3.0\n    @property\n    def k(self):\n        return 4.0\n"
        "    def __init__(self):\n        self.w = jnp.ones(4)\n\n"
        "class Net(eqx.Module):\n    a: Linear\n    b: eqx.nn.Linear\n"
        "    def __init__(self):\n        self.a = Linear(jnp.ones(4))\n"
        "        self.b = eqx.nn.Linear(4, 4, key=jax.random.key(0))\n"
        "    def __call__(self, x):\n        return self.b(self.a(x))\n\nnet = Net()\n\n"
        "def fn(x):\n    double = jax.tree.map(lambda v: v * 2, net)\n    return double(x) + net(x) + Own()(x)\n",
        ("9.0", "8.0"),
        ("3.0", "5.0"),
        ("x * self.w", "x + self.w"),
        ("key(0)", "key(1)"),
        ("7.0", "6.0"),
    ),
    "flax_linen": _kind(
        "import flax.linen as nn\n\nclass Mlp(nn.Module):\n    '''DOC'''\n    width: int = 9\n"
        "    @nn.compact\n    def __call__(self, x):\n        x = nn.Dense(self.width)(x)\n"
        "        return nn.Dense(4)(nn.relu(x))\n\nmodel = Mlp()\n"
        "params = model.init(jax.random.key(0), jnp.ones(4))\n\n"
        "def fn(x):\n    return model.apply(params, x)\n",
        ("= 9", "= 8"),
        ("nn.relu", "nn.tanh"),
    ),
    "flax_nnx": _kind(
        "from flax import nnx\n\nclass Mlp(nnx.Module):\n    '''DOC'''\n"
        "    def __init__(self, rngs):\n        self.a = nnx.Linear(4, 9, rngs=rngs)\n"
        "        self.b = nnx.Linear(9, 4, rngs=rngs)\n"
        "    def __call__(self, x):\n        return self.b(nnx.relu(self.a(x)))\n\n"
        "net = Mlp(nnx.Rngs(0))\n\ndef fn(x):\n    return net(x)\n",
        ("Rngs(0)", "Rngs(1)"),
        ("nnx.relu", "nnx.tanh"),
    ),
    "nnx_split": _kind(
        "from flax import nnx\n\nclass Net(nnx.Module):\n    def __init__(self, rngs):\n"
        "        self.w = nnx.Param(jnp.ones(4) * 9)\n        self.n = 3\n"
        "    def __call__(self, x):\n        return x * self.w[...] + self.n\n\n"
        "GRAPH, STATE = nnx.split(Net(nnx.Rngs(0)))\n\n"
        "def fn(x):\n    return nnx.merge(GRAPH, STATE)(x)\n",
        ("* 9", "* 8"),
        ("self.n = 3", "self.n = 4"),
    ),
    "optax_transform": _kind(
        "import optax\n\ntx = optax.chain(optax.clip(9.0), optax.adam(optax.exponential_decay(0.1, 10, 0.5)))\n"
        "\ndef fn(x):\n    state = tx.init(x)\n    updates, state = tx.update(x * 20, state, x)\n"
        "    return optax.apply_updates(x, updates)\n",
        ("0.1", "0.2"),
        ("9.0", "8.0"),
    ),
    "train_step": _kind(
        "import optax\n\ndef model(params, x):\n    local_v = jnp.tanh(x @ params['w'])\n"
        "    return local_v + params['b']\n\n"
        "def loss(params, x):\n    return jnp.mean((model(params, x) - 1.0) ** 2)\n\n"
        "tx = optax.sgd(0.5, momentum=0.9)\n"
        "params = {'w': jnp.eye(4), 'b': jnp.zeros(4)}\n\n"
        "def fn(x):\n    value, grads = jax.value_and_grad(loss)(params, x)\n"
        "    updates, _ = tx.update(grads, tx.init(params))\n"
        "    return optax.apply_updates(params, updates)['w'] + value\n",
        ("0.5", "0.25"),
        ("- 1.0", "- 2.0"),
        ("jnp.eye(4)", "jnp.ones((4, 4))"),
    ),
    "user_jax_alias": _kind(
        "from um_backend import xp\n\ndef fn(x):\n    return xp.sin(x) * xp.pi * 9.0\n",
        ("9.0", "8.0"),
        ("um_backend.py", "jax.numpy", "numpy"),
        files={"um_backend.py": "import jax.numpy as xp\n"},
    ),
    "primitives_and_shards": _kind(
        "from jax.sharding import Mesh, NamedSharding, PartitionSpec as P\n\n"
        "MESH = Mesh(np.array(jax.devices()[:1]), ('data',))\nSPEC = NamedSharding(MESH, P('data'))\n\n"
        "def fn(x):\n    return jax.lax.with_sharding_constraint(x * 9.0, SPEC)\n",
        ("9.0", "8.0"),
        ("P('data')", "P(None)"),
    ),
    "jaxtyping_annotations": _kind(
        "import equinox as eqx\nfrom jaxtyping import Array, Float\n\n"
        "class M(eqx.Module):\n    w: Float[Array, 'n']\n    k: int = eqx.field(static=True)\n"
        "    def __call__(self, x: Float[Array, 'n']) -> Float[Array, 'n']:\n"
        "        return x * self.w * self.k\n\nm = M(jnp.ones(4), 9)\n\n"
        "def fn(x: Float[Array, '4']):\n    return m(x)\n",
        ("4), 9)", "4), 8)"),
        ("self.w * self.k", "self.w + self.k"),
    ),
    "equinox_filters": _kind(
        "import equinox as eqx\n\nm = eqx.nn.MLP(4, 4, 8, 2, key=jax.random.key(0))\n\n"
        "@eqx.filter_jit\ndef call(m, x):\n    return m(x)\n\n"
        "@eqx.filter_value_and_grad\ndef loss(m, x):\n    return call(m, x).sum() * 9.0\n\n"
        "def fn(x):\n    return loss(m, x)[1].layers[0].weight\n",
        ("9.0", "8.0"),
        ("key(0)", "key(1)"),
    ),
    "equinox_inheritance": _kind(
        "import abc\nimport equinox as eqx\n\nclass Base(eqx.Module):\n"
        "    k: eqx.AbstractVar[float]\n    @abc.abstractmethod\n    def run(self, x): ...\n"
        "    def twice(self, x):\n        return self.run(self.run(x))\n\n"
        "class A(Base):\n    w: jax.Array = eqx.field(converter=jnp.asarray)\n    k: float = 9.0\n"
        "    def run(self, x):\n        return x * self.k + self.w\n\n"
        "class B(A):\n    def run(self, x):\n        return super().run(x) + 1\n\n"
        "b = B(np.ones(4, np.float32))\n\ndef fn(x):\n    return b.twice(x)\n",
        ("9.0", "8.0"),
        ("+ 1", "+ 2"),
    ),
    "linen_lifted": _kind(
        "import flax.linen as nn\n\nclass Block(nn.Module):\n    @nn.compact\n"
        "    def __call__(self, c, _):\n        return nn.Dense(4)(c) * 9.0, None\n\n"
        "S = nn.scan(nn.remat(Block), variable_axes={'params': 0}, split_rngs={'params': True}, length=3)\n"
        "m = S()\np = m.init(jax.random.key(0), jnp.ones(4), None)\n\n"
        "def fn(x):\n    return m.apply(p, x, None)[0]\n",
        ("9.0", "8.0"),
    ),
    "linen_setup": _kind(
        "import flax.linen as nn\n\nclass M(nn.Module, kw_only=True):\n    n: int = 9\n"
        "    act: object = nn.relu\n    def setup(self):\n        self.a = nn.Dense(self.n)\n"
        "        self.b = [nn.Dense(4) for _ in range(2)]\n    def __call__(self, x):\n"
        "        x = self.act(self.a(x))\n        return self.b[1](self.b[0](x))\n\n"
        "m = M()\np = m.init(jax.random.key(0), jnp.ones(4))\n\n"
        "def fn(x):\n    return m.apply(p, x)\n",
        ("= 9", "= 8"),
        ("nn.relu", "nn.tanh"),
    ),
    "train_state": _kind(
        "from typing import Any\nimport flax.linen as nn\nimport optax\n"
        "from flax.training import train_state\n\nclass State(train_state.TrainState):\n"
        "    extra: Any = None\n\nm = nn.Dense(4)\np = m.init(jax.random.key(0), jnp.ones(4))\n"
        "s = State.create(apply_fn=m.apply, params=p, tx=optax.adam(0.5), extra=jnp.ones(4) * 9)\n\n"
        "def fn(x):\n    g = jax.grad(lambda p: s.apply_fn(p, x).sum())(s.params)\n"
        "    return s.apply_gradients(grads=g).params['params']['kernel'] + s.extra\n",
        ("* 9", "* 8"),
        ("adam(0.5)", "adam(0.25)"),
    ),
    "nnx_jit_inside": _kind(
        "from flax import nnx\n\nclass Count(nnx.Variable):\n    pass\n\n"
        "class N(nnx.Module):\n    def __init__(self, rngs):\n"
        "        self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs) for _ in range(2)])\n"
        "        self.c = Count(jnp.ones(()) * 9)\n    def __call__(self, x):\n"
        "        for layer in self.layers:\n            x = layer(x)\n"
        "        return x + self.c[...]\n\nm = N(nnx.Rngs(0))\n\n"
        "@nnx.jit\ndef call(m, x):\n    return m(x)\n\ndef fn(x):\n    return call(m, x)\n",
        ("* 9", "* 8"),
        ("Rngs(0)", "Rngs(1)"),
    ),
    "optax_wrappers": _kind(
        "import optax\n\ntx = optax.multi_transform(\n"
        "    {'a': optax.inject_hyperparams(optax.adam)(learning_rate=0.5),\n"
        "     'b': optax.masked(optax.sgd(0.125), True)},\n    {'x': 'a', 'y': 'b'},\n)\n\n"
        "def fn(x):\n    p = {'x': x, 'y': x}\n    u, _ = tx.update(p, tx.init(p), p)\n"
        "    return u['x'] + u['y']\n",
        ("0.125", "0.25"),
        ("'y': 'b'", "'y': 'a'"),
    ),
    "callbacks": _kind(
        "import functools\n\ndef host(k, x):\n    return np.asarray(x) * 9 * k\n\n"
        "SHAPE = jax.ShapeDtypeStruct((4,), jnp.float32)\n\n"
        "def fn(x):\n    return jax.pure_callback(functools.partial(host, 1), SHAPE, x)\n",
        ("* 9", "* 8"),
    ),
    "custom_vmap": _kind(
        "import functools\n\n@jax.custom_batching.custom_vmap\ndef g(x):\n    return x * 2\n\n"
        "@g.def_vmap\ndef rule(axis_size, in_batched, x):\n    return x * 9.0, in_batched[0]\n\n"
        "@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))\ndef h(k, x):\n    return x * k\n\n"
        "h.defvjp(lambda k, x: (h(k, x), None), lambda k, r, t: (t * k * 7.0,))\n\n"
        "def fn(x):\n    return jax.vmap(g)(x) + jax.grad(lambda x: h(2.0, x).sum())(x)\n",
        ("9.0", "8.0"),
        ("7.0", "6.0"),
    ),
    "jitted_methods": _kind(
        "import functools\n\nclass A:\n    g = staticmethod(jax.jit(lambda x: x * 5.0))\n"
        "    def __init__(self, k):\n        self.k = k\n"
        "    @functools.partial(jax.jit, static_argnums=0)\n    def run(self, x):\n"
        "        return x * self.k\n\na = A(9.0)\n\ndef fn(x):\n    return A.g(a.run(x))\n",
        ("9.0", "8.0"),
        ("5.0", "6.0"),
    ),
    "table_of_functions": _kind(
        "ACT = {'relu': jax.nn.relu, 'gelu': jax.nn.gelu, 'mine': lambda x: x * 9.0}\n\n"
        "def fn(x):\n    return ACT['gelu'](ACT['mine'](x))\n",
        ("9.0", "8.0"),
        ("'gelu': jax.nn.gelu", "'gelu': jax.nn.silu"),
    ),
    "dropped_fields": _kind(
        "import dataclasses\nimport functools\n\n"
        "@functools.partial(jax.tree_util.register_dataclass, data_fields=['w'], meta_fields=['k'])\n"
        "@dataclasses.dataclass(kw_only=True)\nclass S:\n    w: jax.Array\n    k: int = 9\n"
        "    cache: object = dataclasses.field(default=None, init=False)\n\n"
        "s = S(w=jnp.ones(4))\n\ndef fn(x):\n    t = jax.tree.map(lambda v: v + 1, s)\n"
        "    return t.w * x * t.k\n",
        ("= 9", "= 8"),
    ),
}
