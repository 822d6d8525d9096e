"""Kinds of functions that depend on classes; see `kinds_plain.py`."""

KINDS = {
    "instance": {
        "source": "class A:\n    '''DOC'''\n    bias = 1.0\n    def __init__(self, k):\n"
        "        self.k = k\n    def __call__(self, x):\n        local_v = x * self.k\n"
        "        return local_v + self.bias\n\na = A(9.0)\n\ndef fn(x):\n    return a(x)\n",
        "edits": [("9.0", "8.0"), ("bias = 1.0", "bias = 2.0"), ("x * self.k", "x - self.k")],
    },
    "dict_of_its_own_attributes": {
        "source": "class A(dict):\n    def __init__(self, **items):\n        super().__init__(**items)\n"
        "        self.__dict__ = self\n\na = A(k=9.0)\n\ndef fn(x):\n    b = A(k=1.0)\n"
        "    return x * a.k * (2 if a.__dict__ is a else 1) + b.k\n",
        "edits": [("k=9.0", "k=8.0"), ("+ b.k", "- b.k")],
    },
    "callable_instance": {
        "source": "class A:\n    def __init__(self, k):\n        self.k = k\n"
        "    def __call__(self, x):\n        return x * self.k\n\nfn = A(9.0)\n",
        "edits": [("9.0", "8.0"), ("x * self.k", "x + self.k")],
    },
    "bound_method": {
        "source": "class A:\n    def __init__(self, k):\n        self.k = k\n"
        "    def run(self, x):\n        return x * self.k\n\nfn = A(9.0).run\n",
        "edits": [("9.0", "8.0"), ("x * self.k", "x + self.k")],
    },
    "inheritance": {
        "source": "class Base:\n    def run(self, x):\n        return x * 9.0\n\n"
        "class Mid(Base):\n    def run(self, x):\n        return super().run(x) + 1\n\n"
        "class Leaf(Mid):\n    def run(self, x):\n        return super().run(x) * 2\n\n"
        "def fn(x):\n    return Leaf().run(x)\n",
        "edits": [("9.0", "8.0"), ("+ 1", "+ 2")],
    },
    "properties": {
        "source": "import functools\n\nclass A:\n    @property\n    def k(self):\n        return 9.0\n"
        "    @staticmethod\n    def s(x):\n        return x + 1\n"
        "    @classmethod\n    def c(cls, x):\n        return cls.s(x) * 2\n"
        "    @functools.cached_property\n    def m(self):\n        return 3.0\n\n"
        "a = A()\n\ndef fn(x):\n    return a.c(x) * a.k + a.m\n",
        "edits": [("9.0", "8.0"), ("+ 1", "+ 2"), ("3.0", "4.0")],
    },
    "descriptor": {
        "source": "class Scaled:\n    def __init__(self, k):\n        self.k = k\n"
        "    def __set_name__(self, owner, name):\n        self.name = '_' + name\n"
        "    def __get__(self, obj, kind=None):\n        return self.k * len(self.name)\n\n"
        "class A:\n    weight = Scaled(9.0)\n\ndef fn(x):\n    return x * A().weight\n",
        "edits": [("9.0", "8.0"), ("'_' +", "'__' +")],
    },
    "metaclass": {
        "source": "class Meta(type):\n    def __new__(mcs, name, bases, names):\n"
        "        names['k'] = 9.0\n        return super().__new__(mcs, name, bases, names)\n"
        "    def __len__(cls):\n        return 3\n\n"
        "class A(metaclass=Meta):\n    def run(self, x):\n        return x * self.k + len(A)\n\n"
        "def fn(x):\n    return A().run(x)\n",
        "edits": [("9.0", "8.0"), ("return 3", "return 4")],
    },
    "dataclass_of_a_metaclass": {
        "source": "import dataclasses\nfrom typing import ClassVar\n\nclass Meta(type):\n"
        "    def __new__(mcs, name, bases, names):\n"
        "        return dataclasses.dataclass(super().__new__(mcs, name, bases, names))\n\n"
        "class A(metaclass=Meta):\n    k: ClassVar[float] = 1.0\n    m: float = 1.0\n    gone: float = 1.0\n\n"
        "A.k, A.m = 9.0, 5.0\ndel A.gone\n\n"
        "def fn(x):\n    return x * A.k + A.m + A().m + (0 if hasattr(A, 'gone') else 100)\n",
        "edits": [("9.0", "8.0"), ("5.0", "6.0"), ("del A.gone", "A.gone = 2.0")],
    },
    "init_subclass": {
        "source": "class Base:\n    seen = []\n    def __init_subclass__(cls, tag, **kw):\n"
        "        super().__init_subclass__(**kw)\n        cls.tag = tag\n"
        "        Base.seen.append(cls)\n\nclass A(Base, tag=9.0):\n    pass\n\n"
        "class B(Base, tag=2.0):\n    pass\n\n"
        "def fn(x):\n    return x * A.tag + B.tag + len(Base.seen)\n",
        "edits": [("9.0", "8.0"), ("tag=2.0", "tag=3.0")],
    },
    "slots": {
        "source": "class A:\n    __slots__ = ('k', '__weakref__', '_priv')\n"
        "    def __init__(self, k):\n        self.k = k\n\na = A(9.0)\n\n"
        "def fn(x):\n    return x * a.k\n",
        "edits": [("9.0", "8.0")],
    },
    "enum_": {
        "source": "import enum\n\nclass Mode(enum.Enum):\n    FAST = 9.0\n    SLOW = 2.0\n"
        "    ALSO = 9.0\n    def scale(self, x):\n        return x * self.value\n\n"
        "class Flag(enum.IntFlag):\n    A = enum.auto()\n    B = enum.auto()\n\n"
        "M = Mode.FAST\nBOTH = Flag.A | Flag.B\n\n"
        "def fn(x):\n    return M.scale(x) + BOTH + (M is Mode.FAST)\n",
        "edits": [("= 9.0", "= 8.0"), ("x * self", "x + self"), ("Flag.A | Flag.B", "Flag.B")],
    },
    "enum_with_init": {
        "source": "import enum\n\nclass Planet(enum.Enum):\n    A = (9.0, 1)\n    B = (2.0, 2)\n"
        "    def __init__(self, mass, n):\n        self.mass = mass\n        self.n = n\n\n"
        "class Color(str, enum.Enum):\n    RED = 'red'\n\n"
        "def fn(x):\n    return x * Planet.A.mass + Planet.B.n + len(Color.RED)\n",
        "edits": [("9.0", "8.0"), ("'red'", "'dark'")],
    },
    "dataclass_": {
        "source": "import dataclasses\n\n@dataclasses.dataclass(frozen=True)\nclass Cfg:\n"
        "    '''DOC'''\n    k: float\n    m: float = 2.0\n"
        "    names: list = dataclasses.field(default_factory=list)\n\n"
        "    def run(self, x):\n        return x * self.k + self.m\n\n"
        "cfg = Cfg(9.0)\n\ndef fn(x):\n    return dataclasses.replace(cfg, m=3.0).run(x) + Cfg(1.0).m\n",
        "edits": [("9.0", "8.0"), ("= 2.0", "= 4.0"), ("frozen=True", "frozen=False")],
    },
    "dataclass_slots": {
        "source": "import dataclasses\n\n@dataclasses.dataclass(slots=True, order=True)\nclass P:\n"
        "    k: float\n    m: float = 2.0\n\np = P(9.0)\n\n"
        "def fn(x):\n    return x * p.k + p.m + (p < P(10.0))\n",
        "edits": [("9.0", "8.0"), ("= 2.0", "= 4.0")],
    },
    "namedtuples": {
        "source": "import collections\nimport typing\n\nP = collections.namedtuple('P', 'k m')\n\n"
        "class Q(typing.NamedTuple):\n    '''DOC'''\n    a: float\n    b: float = 2.0\n"
        "    def total(self):\n        return self.a + self.b\n\n"
        "p = P(9.0, 1.0)\n\ndef fn(x):\n    return x * p.k + Q(3.0).total() + p._replace(m=5.0).m\n",
        "edits": [("9.0", "8.0"), ("b: float = 2.0", "b: float = 4.0"), ("m=5.0", "m=6.0")],
    },
    "abstract": {
        "source": "import abc\n\nclass Base(abc.ABC):\n    @abc.abstractmethod\n"
        "    def run(self, x): ...\n    def twice(self, x):\n        return self.run(self.run(x))\n\n"
        "class A(Base):\n    def run(self, x):\n        return x * 9.0\n\n"
        "class Other:\n    pass\n\nBase.register(Other)\n\n"
        "def fn(x):\n    return A().twice(x) + isinstance(Other(), Base)\n",
        "edits": [("9.0", "8.0"), ("Base.register(Other)", "pass")],
    },
    "protocol_and_generic": {
        "source": "import typing\n\nT = typing.TypeVar('T')\n\n@typing.runtime_checkable\n"
        "class Runs(typing.Protocol):\n    def run(self, x): ...\n\n"
        "class Box(typing.Generic[T]):\n    def __init__(self, v: T):\n        self.v = v\n"
        "    def run(self, x):\n        return x * self.v\n\n"
        "class FloatBox(Box[float]):\n    pass\n\nb = FloatBox(9.0)\n\n"
        "def fn(x):\n    return b.run(x) + isinstance(b, Runs)\n",
        "edits": [("9.0", "8.0"), ("def run(self, x): ...", "def jog(self, x): ...")],
    },
    "class_that_needs_itself": {
        "source": "class V:\n    def __init__(self, k):\n        self.k = k\n"
        "    def __add__(self, other):\n        return V(self.k + other.k)\n\n"
        "V.ZERO = V(9.0)\nV.TABLE = {'one': V(1.0)}\nV.kind = V\n\n"
        "def fn(x):\n    return x * (V.ZERO + V.TABLE['one']).k + V.kind(2.0).k\n",
        "edits": [("9.0", "8.0"), ("V(1.0)", "V(2.0)")],
    },
    "classes_that_need_each_other": {
        "source": "class A:\n    def make(self):\n        return B(9.0)\n\n"
        "class B(A):\n    def __init__(self, k):\n        self.k = k\n    def back(self):\n"
        "        return A().make()\n\n"
        "def fn(x):\n    return x * B(1.0).back().k\n",
        "edits": [("9.0", "8.0")],
    },
    "class_in_function": {
        "source": "K = 9.0\n\ndef fn(x):\n    class Local:\n        '''DOC'''\n        k = K\n"
        "        def run(self, x):\n            return x * self.k\n    return Local().run(x)\n",
        "edits": [("9.0", "8.0"), ("x * self", "x + self")],
    },
    "class_from_function": {
        "source": "def make(k):\n    class Made:\n        def run(self, x):\n            return x * k\n"
        "    return Made\n\nA, B = make(9.0), make(2.0)\n\n"
        "def fn(x):\n    return A().run(x) + B().run(x)\n",
        "edits": [("9.0", "8.0"), ("make(2.0)", "make(3.0)")],
    },
    "reduce_and_state": {
        "source": "class R:\n    def __init__(self, k):\n        self.k = k\n        self.junk = open\n"
        "    def __reduce__(self):\n        return R, (self.k,)\n\n"
        "class S:\n    def __init__(self, k):\n        self.k = k\n        self.junk = open\n"
        "    def __getstate__(self):\n        return {'kk': self.k}\n"
        "    def __setstate__(self, state):\n        self.k = state['kk']\n\n"
        "r, s = R(9.0), S(2.0)\n\ndef fn(x):\n    return x * r.k + s.k\n",
        "edits": [("9.0", "8.0"), ("S(2.0)", "S(3.0)"), ("state['kk']", "state['kk'] + 1")],
    },
    "copyreg_reducer": {
        "source": "import copyreg\n\nclass R:\n    def __init__(self, k):\n        self.k = k\n\n"
        "def build(k):\n    return R(k + 1)\n\n"
        "copyreg.pickle(R, lambda r: (build, (r.k,)))\nr = R(9.0)\n\n"
        "def fn(x):\n    return x * r.k\n",
        "edits": [("9.0", "8.0")],
    },
    "forgetful_pickle": {
        "source": "class F:\n    k = 1.0\n    def __init__(self, k):\n        self.k, self.j = k, 3.0\n"
        "    def __getstate__(self):\n        return {'j': self.j}\n\n"
        "class Slotted:\n    __slots__ = ('a', 'b')\n    def __init__(self, a, b):\n        self.a, self.b = a, b\n"
        "    def __getstate__(self):\n        return None, {'a': self.a}\n\n"
        "f, s = F(9.0), Slotted(2.0, 4.0)\n\ndef fn(x):\n    return x * f.k + f.j * s.a * s.b\n",
        "edits": [("9.0", "8.0"), ("2.0, 4.0", "2.0, 5.0")],
    },
    "array_subclass": {
        "source": "import numpy as np\n\nclass Tagged(np.ndarray):\n    unit = 1.0\n"
        "    def __array_finalize__(self, source):\n        self.unit = getattr(source, 'unit', 2.0)\n\n"
        "t = np.ones(3).view(Tagged)\nt.unit = 9.0\n\ndef fn(x):\n    return x * t.unit + float(t.sum())\n",
        "edits": [("9.0", "8.0"), ("np.ones", "np.zeros")],
    },
    "kd_tree": {
        "source": "import numpy as np\nfrom scipy.spatial import KDTree\n\n"
        "class Tree(KDTree):\n    def __init__(self, points, unit):\n        super().__init__(points)\n"
        "        self.unit = unit\n\npoints = np.sin(np.arange(400.0) ** 2).reshape(200, 2)\n"
        "plain, own = KDTree(points), Tree(points[:50], 9.0)\n\n"
        "def fn(x):\n    return x * plain.query([0.1, 0.2])[1] + own.unit * own.query([0.3, 0.1])[0]\n",
        "edits": [("9.0", "8.0"), ("** 2", "** 3"), ("[:50]", "[:60]")],
    },
    "weak_containers": {
        "source": "import functools\nimport weakref\n\nclass A:\n    def __init__(self, k):\n        self.k = k\n\n"
        "a, b, c = A(9.0), A('x'), A(2.0)\n"
        "group, table = weakref.WeakSet([a, c]), weakref.WeakKeyDictionary({a: 3.0})\n"
        "named = weakref.WeakValueDictionary(b=b)\n\n"
        "@functools.singledispatch\ndef twice(k):\n    return k * 2\n\n"
        "def fn(x):\n    return twice(x) * sum(e.k for e in group) + table[a] + len(named['b'].k)\n",
        "edits": [("9.0", "8.0"), ("3.0", "4.0"), ("'x'", "'xy'"), ("2.0", "5.0")],
    },
    "filled_property": {
        "source": "import functools\n\nclass A:\n    def __init__(self, k):\n        self.k = k\n"
        "    @functools.cached_property\n    def older(self):\n        return self.k * 2\n"
        "    @functools.cached_property\n    def own(self):\n        return [self.k]\n"
        "    @functools.cached_property\n    def plain(self):\n        return self.k + 1\n\n"
        "a = A(9.0)\na.older, a.own\na.k = 2.0\n\n"
        "def fn(x):\n    return x * a.older + a.own[0] + a.plain\n",
        "edits": [("9.0", "8.0"), ("k = 2.0", "k = 3.0"), ("+ 1", "+ 2")],
    },
    "subclass_of_dict": {
        "source": "class Config(dict):\n    def __getattr__(self, name):\n        return self[name]\n\n"
        "class Names(list):\n    pass\n\ncfg = Config(k=9.0)\nnames = Names([1, 2])\n\n"
        "def fn(x):\n    return x * cfg.k + len(names)\n",
        "edits": [("9.0", "8.0"), ("[1, 2]", "[1, 2, 3]")],
    },
    "custom_hash": {
        "source": "class Key:\n    def __init__(self, n):\n        self.n = n\n"
        "    def __hash__(self):\n        return hash(('key', self.n))\n"
        "    def __eq__(self, other):\n        return self.n == other.n\n\n"
        "D = {Key('a'): 9.0}\nS = {Key('a'), Key('b'), Key('c')}\n\n"
        "def fn(x):\n    return x * D[Key('a')] + (Key('b') in S)\n",
        "edits": [("9.0", "8.0"), ("Key('c')}", "Key('d')}")],
    },
    "wrapped_class": {
        "source": "def register(cls):\n    cls.k = 9.0\n    return cls\n\n@register\nclass A:\n"
        "    def run(self, x):\n        return x * self.k\n\nREGISTRY = {'a': A}\n\n"
        "def fn(x):\n    return REGISTRY['a']().run(x)\n",
        "edits": [("9.0", "8.0")],
    },
    "string_annotations": {
        "source": "from __future__ import annotations\nimport dataclasses\nimport typing\n\n"
        "@dataclasses.dataclass\nclass Node:\n    k: float\n    next: Node | None = None\n"
        "    tag: typing.ClassVar[float] = 9.0\n\nn = Node(2.0, Node(3.0))\n\n"
        "def fn(x: Node):\n    return x * n.next.k + n.tag\n",
        "edits": [("9.0", "8.0"), ("Node(3.0)", "Node(4.0)")],
    },
    "enum_that_makes_members": {
        "source": "import enum\n\nclass E(enum.Enum):\n    def __new__(cls, value, label):\n"
        "        self = object.__new__(cls)\n        self._value_ = value\n"
        "        self.label = label\n        return self\n    A = (9.0, 'a')\n    B = (2.0, 'bb')\n\n"
        "class Auto(enum.Enum):\n    def __new__(cls):\n        self = object.__new__(cls)\n"
        "        self._value_ = len(cls.__members__) + 1\n        return self\n\n"
        "class F(Auto):\n    X = ()\n    Y = ()\n\n"
        "def fn(x):\n    return x * E.A.value + len(E.B.label) + F.Y.value + (F(2) is F.Y)\n",
        "edits": [("9.0", "8.0"), ("'bb'", "'bbb'"), ("+ 1\n", "+ 2\n")],
    },
    "ordering_and_dispatch": {
        "source": "import functools\n\n@functools.total_ordering\nclass A:\n"
        "    def __init__(self, k):\n        self.k = k\n    def __lt__(self, o):\n"
        "        return self.k < o.k\n    def __eq__(self, o):\n        return self.k == o.k\n"
        "    @functools.singledispatchmethod\n    def m(self, v, x):\n        return x\n"
        "    @m.register(float)\n    def _(self, v, x):\n        return x * v\n\n"
        "def fn(x):\n    return A(2).m(9.0, x) + (A(2) >= A(1))\n",
        "edits": [("9.0", "8.0"), ("x * v", "x + v")],
    },
    "virtual_containers": {
        "source": "import collections.abc\nimport contextlib\n\n"
        "class L(collections.abc.Sequence):\n    def __init__(self, v):\n        self.v = v\n"
        "    def __len__(self):\n        return len(self.v)\n    def __getitem__(self, i):\n"
        "        return self.v[i]\n\n@contextlib.contextmanager\ndef times(k):\n    yield k\n\n"
        "items = L([9.0, 2])\n\ndef fn(x):\n    with times(3) as k:\n"
        "        return x * sum(items) * k + (2 in items)\n",
        "edits": [("9.0", "8.0"), ("times(3)", "times(4)")],
    },
}
