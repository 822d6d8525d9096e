"""The parts of random programs; see `program.py`.

Each part defines `unit_$N`, a function of one array. In its text

- `<<a|b|c>>` is a choice that matters; `<<name=a|b>>` gives it a name, and `<<name>>` repeats it;
- `$INNER(x)` calls the part below, if there is one, and `$IMPORTS` is where the body imports what that needs;
- `DOC` is a docstring that nothing reads, and `local_a`, `local_b` are local variables: neither matters.
"""

PARTS = {
    "plain": """
def unit_$N(x):
    DOC
    $IMPORTS
    local_a = $INNER(x) <<*|+|->> <<2.0|3.0|5.0>>
    return local_a
""",
    "constant": """
RATE_$N = <<0.5|0.25|1.5>>

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * RATE_$N<<| + 1.0| + RATE_$N>>
""",
    "helpers": """
def double_$N(x):
    DOC
    return x * <<2.0|3.0>>

def <<name=shift|move>>_$N(x):
    local_b = x + <<1.0|4.0>>
    return local_b

def unit_$N(x):
    $IMPORTS
    local_a = <<double|<<name>>>>_$N($INNER(x))
    return <<name>>_$N(local_a)
""",
    "closure": """
def make_$N(k):
    def closed(x):
        DOC
        $IMPORTS
        local_a = $INNER(x) <<*|-|+>> k
        return local_a
    return closed

unit_$N = make_$N(<<2.0|3.0|0.5>>)
""",
    "closure_over_function": """
def low_$N(x):
    return x - <<1.0|2.0>>

def high_$N(x):
    return x * <<4.0|3.0>>

def make_$N(f, g=<<low|high>>_$N):
    def closed(x):
        $IMPORTS
        return f($INNER(x)) + g(x)
    return closed

unit_$N = make_$N(<<low|high>>_$N)
""",
    "closure_over_containers": """
def make_$N(names, table, rows):
    def closed(x):
        $IMPORTS
        local_a = len(names) + <<0|2>> * ('b' in names)
        return $INNER(x) * local_a + table['<<u|v>>'] + rows[<<0|1>>][0]
    return closed

unit_$N = make_$N({'a', '<<b|c>>', 'dd'<<|, 7>>}, {'u': 1.0, 'v': <<2.0|3.0>>}, [(1.0,), [<<4.0|5.0>>]])
""",
    "nested_functions": """
def unit_$N(x):
    DOC
    def inner(y):
        DOC
        def most(z):
            local_b = z * <<2.0|3.0>>
            return local_b
        return most(y) <<+|->> <<1.0|2.0>>
    $IMPORTS
    local_a = inner($INNER(x))
    return local_a
""",
    "recursion": """
DEPTH_$N = <<3|4>>

def unit_$N(x, n=DEPTH_$N):
    $IMPORTS
    return $INNER(x) if n == 0 else unit_$N(x, n - 1) <<*|+>> <<2.0|1.5>>
""",
    "mutual_recursion": """
def even_$N(x, n):
    return x if n == 0 else odd_$N(x, n - 1)

def odd_$N(x, n):
    return x <<+|->> <<9.0|8.0>> if n == 0 else even_$N(x, n - 1)

def unit_$N(x):
    $IMPORTS
    return even_$N($INNER(x), <<5|7>>) + odd_$N(x, <<2|4>>)
""",
    "generators": """
def steps_$N(n):
    for local_b in range(n):
        yield local_b * <<2.0|3.0>>

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + sum(steps_$N(<<3|4>>)) + sum(i for i in range(<<2|5>>))
""",
    "comprehensions": """
K_$N = <<2.0|3.0>>

def unit_$N(x):
    local_a = [i * K_$N for i in range(<<3|4>>)]
    local_b = {str(i): v for i, v in enumerate(local_a)}
    $IMPORTS
    return $INNER(x) + sum(local_b.values()) + len({v for v in local_a<<| if v>>})
""",
    "defaults": """
def unit_$N(x, k=<<2.0|3.0>>, *, m=<<1.0|4.0>>, names=('a', <<'b'|'b', 'c'>>)):
    DOC
    $IMPORTS
    return $INNER(x) * k + m + len(names)
""",
    "lambda": """
unit_$N = lambda x: scale_$N(x) <<*|+>> <<2.0|3.0>>

def scale_$N(x):
    $IMPORTS
    return $INNER(x) + <<1.0|2.0>>
""",
    "decorator": """
import functools

def scaled_$N(k):
    DOC
    def wrap(f):
        @functools.wraps(f)
        def inner(*args):
            return f(*args) <<*|+>> k
        return inner
    return wrap

def shifted_$N(f):
    return lambda x: f(x) + <<1.0|2.0>>

<<|@shifted_$N\n>>@scaled_$N(<<2.0|3.0>>)
<<|@shifted_$N\n>>def unit_$N(x):
    DOC
    $IMPORTS
    return $INNER(x) - 1
""",
    "partial": """
import functools

def base_$N(k, x, *, m):
    $IMPORTS
    return $INNER(x) <<*|->> k + m

unit_$N = functools.partial(base_$N, <<2.0|3.0>>, m=<<1.0|4.0>>)
""",
    "lru_cache": """
import functools

@functools.lru_cache(maxsize=<<None|4>>)
def table_$N(n):
    return n * <<2.0|3.0>>

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + table_$N(<<3|4>>) + table_$N(1)
""",
    "singledispatch": """
import functools

@functools.singledispatch
def scale_$N(v, x):
    return x

@scale_$N.register(float)
def _(v, x):
    return x <<*|->> v

<<|@scale_$N.register(int)\ndef _(v, x):\n    return x + v * 7.0\n>>
def unit_$N(x):
    $IMPORTS
    return scale_$N(<<9.0|8.0>>, $INNER(x)) + scale_$N(2, x)
""",
    "instance": """
class Scale_$N:
    DOC
    bias = <<1.0|2.0>>

    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        DOC
        local_a = x <<*|+>> self.k
        return local_a + self.bias

scale_$N = Scale_$N(<<2.0|3.0>>)
<<|scale_$N.bias = 5.0\n|Scale_$N.bias = 6.0\n>>
def unit_$N(x):
    $IMPORTS
    return scale_$N($INNER(x))
""",
    "inheritance": """
class Base_$N:
    DOC
    k = <<2.0|3.0>>

    def run(self, x):
        return x * self.k

    def more(self, x):
        return x + <<1.0|2.0>>

class Mid_$N(Base_$N):
    k_too = 1.0
    <<|\n    k = 4.0>>
    <<|\n    def run(self, x):\n        local_a = super().run(x)\n        return local_a - 1.0>>

class Leaf_$N(<<Mid|Base>>_$N):
    def run(self, x):
        return super().run(x) <<*|+>> <<1.5|2.5>>
    <<|\n    def more(self, x):\n        return x>>

def unit_$N(x):
    $IMPORTS
    local_a = <<Leaf|Mid>>_$N()
    return local_a.more(local_a.run($INNER(x)))
""",
    "mixins": """
class Left_$N:
    def go(self, x):
        return x * <<2.0|3.0>>

class Right_$N:
    def go(self, x):
        return x + <<2.0|3.0>>

class Both_$N(<<Left_$N, Right_$N|Right_$N, Left_$N>>):
    pass

def unit_$N(x):
    $IMPORTS
    return Both_$N().go($INNER(x))
""",
    "properties": """
import functools

class Props_$N:
    @property
    def k(self):
        DOC
        return <<2.0|3.0>>

    @staticmethod
    def s(x):
        return x + <<1.0|2.0>>

    @classmethod
    def c(cls, x):
        return cls.s(x) * <<2.0|4.0>>

    @functools.cached_property
    def m(self):
        return <<3.0|5.0>>

props_$N = Props_$N()

def unit_$N(x):
    $IMPORTS
    return props_$N.c($INNER(x)) * props_$N.k + props_$N.m
""",
    "property_or_attribute": """
class Thing_$N:
    <<value = 2.0|value = 3.0|@property\n    def value(self):\n        return 2.5>>

    def __getattr__(self, name):
        if name.startswith('extra'):
            return <<1.0|7.0>>
        raise AttributeError(name)

thing_$N = Thing_$N()

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * thing_$N.value + thing_$N.extra_<<one|two>>
""",
    "descriptor": """
class Scaled_$N:
    def __init__(self, k):
        self.k = k

    def __set_name__(self, owner, name):
        self.name = <<'_'|'___'>> + name

    def __get__(self, obj, kind=None):
        return self.k * len(self.name)

class Owner_$N:
    <<w=weight|load>> = Scaled_$N(<<2.0|3.0>>)

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + Owner_$N().<<w>>
""",
    "slots": """
class Slots_$N:
    __slots__ = ('k', 'm')

    def __init__(self, k, m=<<1.0|2.0>>):
        self.k, self.m = k, m

slots_$N = Slots_$N(<<2.0|3.0>>)

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * slots_$N.k + slots_$N.m
""",
    "operators": """
class Num_$N:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        return Num_$N(self.v + other.v<<| * 2>>)

    def __len__(self):
        return <<3|4>>

    def __getitem__(self, i):
        return self.v * i

    def __eq__(self, other):
        return <<self.v == other.v|True>>

    __hash__ = None

a_$N, b_$N = Num_$N(<<2.0|3.0>>), Num_$N(1.0)

def unit_$N(x):
    $IMPORTS
    local_a = a_$N + b_$N
    return $INNER(x) + local_a[<<2|3>>] + len(local_a) + (a_$N == b_$N)
""",
    "dataclass": """
import dataclasses

@dataclasses.dataclass<<|(frozen=True)|(order=True)>>
class Config_$N:
    DOC
    k: float
    m: float = <<2.0|4.0>>
    rows: list = dataclasses.field(default_factory=lambda: [<<1.0|3.0>>])

    def run(self, x):
        local_a = x * self.k
        return local_a + self.m + self.rows[0]

config_$N = Config_$N(<<9.0|8.0>><<|, m=6.0>>)

def unit_$N(x):
    $IMPORTS
    return dataclasses.replace(config_$N, rows=[5.0]).run($INNER(x)) + Config_$N(1.0).rows[0]
""",
    "dataclass_inheritance": """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Small_$N:
    k: float = <<2.0|3.0>>

@dataclasses.dataclass(frozen=True)
class Large_$N(Small_$N):
    m: float = <<1.0|4.0>>
    <<|k: float = 6.0>>

    def __post_init__(self):
        object.__setattr__(self, 'total', self.k <<+|*>> self.m)

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * Large_$N(<<|m=7.0>>).total
""",
    "enum": """
import enum

class Mode_$N(enum.Enum):
    DOC
    FAST = <<2.0|3.0>>
    SLOW = <<4.0|5.0>>
    <<|ALSO = 2.0>>

    def scale(self, x):
        return x <<*|+>> self.value

MODE_$N = Mode_$N.<<FAST|SLOW>>

def unit_$N(x):
    $IMPORTS
    return MODE_$N.scale($INNER(x)) + (MODE_$N is Mode_$N.FAST) + len(Mode_$N.__members__)
""",
    "flags": """
import enum

class Flag_$N(enum.IntFlag):
    A = enum.auto()
    B = enum.auto()
    <<C|D>> = <<4|16>>

BOTH_$N = Flag_$N.A | Flag_$N.B

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + int(BOTH_$N<<| & Flag_$N.A>>) + len(Flag_$N)
""",
    "namedtuple": """
import collections
import typing

Pair_$N = collections.namedtuple('Pair_$N', <<'k m'|'m k'>>)

class Typed_$N(typing.NamedTuple):
    a: float
    b: float = <<2.0|4.0>>

    def total(self):
        return self.a <<+|*>> self.b

pair_$N = Pair_$N(<<9.0|8.0>>, 1.0)

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * pair_$N.k + Typed_$N(3.0).total() + pair_$N._replace(m=<<5.0|6.0>>).m
""",
    "metaclass": """
class Meta_$N(type):
    def __new__(mcs, name, bases, names):
        names['k'] = <<2.0|3.0>>
        return super().__new__(mcs, name, bases, names)

    def __len__(cls):
        return <<3|4>>

class Made_$N(metaclass=Meta_$N):
    def run(self, x):
        return x <<*|+>> self.k + len(Made_$N)

def unit_$N(x):
    $IMPORTS
    return Made_$N().run($INNER(x))
""",
    "init_subclass": """
class Registry_$N:
    seen = []

    def __init_subclass__(cls, tag, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag <<*|+>> 2
        Registry_$N.seen.append(cls)

class One_$N(Registry_$N, tag=<<9.0|8.0>>):
    pass

<<|class Two_$N(Registry_$N, tag=2.0):\n    pass\n>>
def unit_$N(x):
    $IMPORTS
    return $INNER(x) * One_$N.tag + len(Registry_$N.seen)
""",
    "bound_method": """
class Runner_$N:
    def __init__(self, k):
        self.k = k

    def run(self, x):
        $IMPORTS
        return $INNER(x) <<*|+>> self.k

    def walk(self, x):
        return x - self.k

unit_$N = Runner_$N(<<9.0|8.0>>).<<run|walk>>
""",
    "containers": """
CFG_$N = {'lr': <<9.0|8.0>>, 'layers': [1, 2, {'deep': (3, <<4|5>>)}], 'set': {'u', 'v', '<<w|z>>'<<|, 'y'>>}}

def unit_$N(x):
    $IMPORTS
    local_a = CFG_$N['layers'][<<2|-1>>]['deep'][1] + ('w' in CFG_$N['set'])
    return $INNER(x) * CFG_$N['lr'] + local_a + len(CFG_$N['set'])
""",
    "order_of_a_dict": """
WEIGHTS_$N = {<<'a': 1.0, 'b': 2.0|'b': 2.0, 'a': 1.0|'a': 1.0, 'b': 3.0>>}

def unit_$N(x):
    $IMPORTS
    local_a = $INNER(x)
    for local_b in WEIGHTS_$N.values():
        local_a = local_a * 0.5 + local_b
    return local_a
""",
    "table_of_functions": """
def square_$N(x):
    return x * x<<| + 1.0>>

OPS_$N = {'sq': square_$N, 'neg': lambda x: -x<<| * 2.0>>, 'id': <<abs|float.__neg__|square_$N>>}
PICK_$N = [<<'sq'|'neg'>>, 'neg']

def unit_$N(x):
    $IMPORTS
    local_a = $INNER(x)
    for name in PICK_$N:
        local_a = OPS_$N[name](local_a)
    return local_a
""",
    "set_of_functions": """
def left_$N(x):
    return x * <<2.0|3.0>>

def right_$N(x):
    return x + <<1.0|2.0>>

ALL_$N = {left_$N<<, right_$N|>>}

def unit_$N(x):
    $IMPORTS
    local_a = $INNER(x)
    return sum(f(1.0) for f in (left_$N, right_$N) if f in ALL_$N) + local_a
""",
    "cycle": """
A_$N = [<<1.0|2.0>>]
B_$N = {'a': A_$N, 'k': <<9.0|8.0>>}
A_$N.append(B_$N)

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * A_$N[1]['k'] + B_$N['a'][0]
""",
    "shared_or_copied": """
ROW_$N = [<<1.0|2.0>>]
ROWS_$N = <<[ROW_$N, ROW_$N]|[ROW_$N, list(ROW_$N)]>>

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + (3.0 if ROWS_$N[0] is ROWS_$N[1] else 5.0) + ROWS_$N[1][0]
""",
    "equal_but_not_the_same": """
VALUE_$N = <<1|1.0|True>>
ZERO_$N = <<0.0|-0.0>>

def unit_$N(x):
    $IMPORTS
    local_a = {int: 2.0, float: 3.0, bool: 5.0}[type(VALUE_$N)]
    return $INNER(x) * local_a + (7.0 if str(ZERO_$N)[0] == '-' else 8.0)
""",
    "constants_in_code": """
def unit_$N(x):
    $IMPORTS
    local_a = {int: 2.0, float: 3.0, bool: 5.0}[type(<<1|1.0|True>>)]
    local_b = 1.0 if 'b' in {'a', <<'b'|'c'>>, 'd'} else 4.0
    return $INNER(x) * local_a + local_b + len((1, (2, <<3|'3', 4>>))[1]) + len('<<short|longer>>')
""",
    "numpy_arrays": """
import numpy as np

W_$N = np.array([1.0, <<2.0|3.0>>, 4.0, 5.0], np.<<float32|int8>>)
VIEW_$N = np.arange(8, dtype=np.float32)<<[:4]|[::2]|[4:]>>

def unit_$N(x):
    $IMPORTS
    return $INNER(x) * W_$N + VIEW_$N
""",
    "function_attributes": """
def helper_$N(x):
    return x * helper_$N.k

helper_$N.k = <<2.0|3.0>>

def unit_$N(x):
    $IMPORTS
    return helper_$N($INNER(x))
""",
    "patched_class": """
class Host_$N:
    def run(self, x):
        return x * <<2.0|3.0>>

def other_$N(self, x):
    return x + <<5.0|6.0>>

<<|Host_$N.run = other_$N\n>>
def unit_$N(x):
    $IMPORTS
    return Host_$N().run($INNER(x))
""",
    "made_in_a_loop": """
MADE_$N = []
for k_$N in (1.0, <<2.0|3.0>>):
    MADE_$N.append(lambda x, k=k_$N: x <<*|+>> k)

def unit_$N(x):
    $IMPORTS
    return MADE_$N[<<0|1>>]($INNER(x)) + MADE_$N[-1](x)
""",
    "late_global": """
def unit_$N(x):
    $IMPORTS
    return $INNER(x) * late_$N<<| + late_$N>>

late_$N = <<2.0|3.0>>
<<|late_$N = 4.0\n>>
""",
    "control_flow": """
class Bad_$N(ValueError):
    k = <<2.0|3.0>>

def unit_$N(x):
    $IMPORTS
    local_a = $INNER(x)
    try:
        if <<True|False>>:
            raise Bad_$N('no')
        local_a = local_a + <<1.0|2.0>>
    except Bad_$N as error:
        local_a = local_a * error.k
    while <<local_a.ndim < 1|False>>:
        local_a = local_a + 1
    return local_a if local_a.ndim == <<1|2>> else -local_a
""",
    "pattern_matching": """
class Point_$N:
    __match_args__ = <<('a', 'b')|('b', 'a')>>

    def __init__(self, a, b):
        self.a, self.b = a, b

def unit_$N(x):
    $IMPORTS
    match Point_$N(<<1.0|3.0>>, 2.0):
        case Point_$N(1.0, k):
            return $INNER(x) * k
        case Point_$N(k, _):
            return $INNER(x) + k
""",
    "strings": """
NAME_$N = '<<ab|abc>>'

def unit_$N(x):
    $IMPORTS
    return $INNER(x) + len(f'{NAME_$N}<<|!>>') + {'ab': 1.0}.get(NAME_$N, <<2.0|3.0>>)
""",
    "nonlocal": """
def make_$N():
    n = <<2.0|3.0>>
    def closed(x):
        nonlocal n
        n = n + 0
        $IMPORTS
        return $INNER(x) * n
    return closed

unit_$N = make_$N()
""",
    "class_in_a_function": """
def make_$N(k):
    class Inner:
        DOC
        scale = k

        def run(self, x):
            return x * self.scale <<+|->> __class__.scale
    return Inner

Inner_$N = make_$N(<<2.0|3.0>>)

def unit_$N(x):
    $IMPORTS
    return Inner_$N().run($INNER(x))
""",
    "docstring_read": """
def helper_$N(x):
    '''<<nine|seven>>'''
    return x

def unit_$N(x):
    $IMPORTS
    return helper_$N($INNER(x)) * len(helper_$N.__doc__)
""",
    "name_read": """
def <<name=alpha|omegas>>_$N(x):
    return x + 1.0

def unit_$N(x):
    $IMPORTS
    return <<name>>_$N($INNER(x)) * len(<<name>>_$N.__name__)
""",
    "evaluated": """
K_$N = <<9.0|8.0>>

def helper_$N(x):
    return x * K_$N

def unit_$N(x):
    $IMPORTS
    return $INNER(eval('helper_$N(x)<<| + 1>>'))
""",
    "registered_pytree": """
import jax

@jax.tree_util.register_pytree_node_class
class Tree_$N:
    def __init__(self, a, k):
        self.a, self.k = a, k

    def tree_flatten(self):
        return (self.a,), self.k

    @classmethod
    def tree_unflatten(cls, k, leaves):
        return cls(leaves[0]<<| + 1.0>>, k)

def unit_$N(x):
    $IMPORTS
    local_a = jax.tree.map(lambda v: v * <<2.0|3.0>>, Tree_$N($INNER(x), <<4.0|5.0>>))
    return local_a.a + local_a.k
""",
    "registered_dataclass": """
import dataclasses
import functools
import jax

@functools.partial(jax.tree_util.register_dataclass, data_fields=[<<'a', 'b'|'b', 'a'>>], meta_fields=['k'])
@dataclasses.dataclass
class State_$N:
    a: object
    b: object
    k: float = <<2.0|3.0>>

def unit_$N(x):
    $IMPORTS
    first, second = jax.tree.leaves(State_$N($INNER(x), x + <<1.0|2.0>>))
    return first * 2.0 - second + State_$N(0, 0).k
""",
    "jax_inside": """
import functools
import jax
import jax.numpy as jnp

@functools.partial(jax.jit, static_argnums=1)
def jitted_$N(x, k):
    return x * k + <<1.0|2.0>>

@jax.custom_jvp
def clipped_$N(x):
    return jnp.where(x > <<1.0|2.0>>, x, 1.0)

@clipped_$N.defjvp
def _(primals, tangents):
    return clipped_$N(*primals), tangents[0] * <<3.0|4.0>>

def unit_$N(x):
    $IMPORTS
    local_a = jax.vmap(lambda v: jitted_$N(v, <<2|3>>))($INNER(x))
    return jax.grad(lambda v: clipped_$N(v).sum())(x) + <<local_a|jax.checkpoint(jnp.tanh)(local_a)>>
""",
}

HOLDERS = {
    "nothing": ("", "held_$N"),
    "dict": ("store_$N = {'f': held_$N, 'g': None}\n", "store_$N['f']"),
    "list": ("row_$N = [0, (held_$N,)]\n", "row_$N[1][0]"),
    "partial": ("import functools\npart_$N = functools.partial(held_$N)\n", "part_$N"),
    "default": ("def call_$N(x, f=held_$N):\n    return f(x)\n", "call_$N"),
    "decorated": (
        "import functools\ndef deco_$N(f):\n    @functools.wraps(f)\n    def call(x):\n"
        "        local_a = f(x)\n        return local_a\n    return call\nheld_too_$N = deco_$N(held_$N)\n",
        "held_too_$N",
    ),
    "class": ("class Holder_$N:\n    DOC\n    f = staticmethod(held_$N)\n    k = 1\n", "Holder_$N.f"),
    "instance": (
        "class Box_$N:\n    def __init__(self, f):\n        self.f = f\nbox_$N = Box_$N(held_$N)\n",
        "box_$N.f",
    ),
    "closure": ("def keep_$N(f):\n    return lambda x: f(x)\nkept_$N = keep_$N(held_$N)\n", "kept_$N"),
    "method": (
        "class Caller_$N:\n    def run(self, x):\n        return held_$N(x)\ncaller_$N = Caller_$N()\n",
        "caller_$N.run",
    ),
}
"""How the part above holds the one below: what it defines beside `held_$N`, and the expression that it calls."""
