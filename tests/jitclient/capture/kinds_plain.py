"""Kinds of functions made with Python alone; the matrix captures each of them.

Every source defines `fn`, called with one array. `local_v` names a local variable, `DOC` stands in
docstrings that nothing reads: axes of the matrix rewrite both. Each edit changes something that
`fn` depends on.
"""

KINDS = {
    "views_of_a_dict": {
        "source": """
TABLE = {"a": 2.0, "b": 3.0}
NAMES, ITEMS = TABLE.keys(), TABLE.items()

def fn(x):
    '''DOC'''
    local_v = x * len(NAMES & {"a"})
    return local_v + sum(value for _, value in ITEMS)
""",
        "edits": [("2.0", "4.0"), ('"b"', '"a"')],
    },
    "lambda_": {"source": "fn = lambda x: x * 2.0\n", "edits": [("2.0", "3.0")]},
    "constant_global": {
        "source": 'LR = 0.5\n\ndef fn(x):\n    """DOC"""\n    local_v = x * LR\n    return local_v\n',
        "edits": [("0.5", "0.25"), ("x * LR", "x + LR")],
    },
    "helper": {
        "source": """
SCALE = 3.0

def helper(x):
    '''DOC'''
    local_v = x + SCALE
    return local_v

def fn(x):
    return helper(x) * 2
""",
        "edits": [("3.0", "4.0"), ("x + SCALE", "x - SCALE")],
    },
    "helper_in_module": {
        "source": "import um_helper\n\ndef fn(x):\n    return um_helper.scale(x)\n",
        "files": {
            "um_helper.py": '"""DOC"""\nK = 2.0\nUNUSED = 1\n\ndef scale(x):\n    local_v = x * K\n    return local_v\n'
        },
        "edits": [("um_helper.py", "2.0", "5.0"), ("um_helper.py", "x * K", "x + K")],
    },
    "three_modules_deep": {
        "source": "from um_one import one\n\ndef fn(x):\n    return one(x)\n",
        "files": {
            "um_one.py": "import um_two\n\ndef one(x):\n    return um_two.two(x)\n",
            "um_two.py": "from um_three import three as t\n\ndef two(x):\n    return t(x) + 1\n",
            "um_three.py": "DEEP = 7.0\n\ndef three(x):\n    return x * DEEP\n",
        },
        "edits": [("um_three.py", "7.0", "8.0"), ("um_two.py", "+ 1", "+ 2")],
    },
    "import_in_body": {
        "source": "import um_body as _\n\ndef fn(x):\n    import um_body\n    return um_body.scale(x)\n",
        "files": {
            "um_body.py": '"""DOC"""\nK = 2.0\n\ndef scale(x):\n    """DOC"""\n    local_v = x * K\n'
            "    return local_v\n"
        },
        "edits": [("um_body.py", "2.0", "5.0"), ("um_body.py", "x * K", "x + K")],
    },
    "from_import_in_body": {
        "source": "import um_pkg.inner\n\ndef fn(x):\n    from um_pkg.inner import scale\n    return scale(x)\n",
        "files": {
            "um_pkg/__init__.py": "BASE = 2.0\n",
            "um_pkg/inner.py": "from . import BASE\nfrom .deep import more\n\ndef scale(x):\n"
            "    return more(x) * BASE\n",
            "um_pkg/deep.py": "def more(x):\n    return x + 4.0\n",
        },
        "edits": [
            ("um_pkg/__init__.py", "2.0", "3.0"),
            ("um_pkg/deep.py", "4.0", "6.0"),
        ],
    },
    "relative_import_in_body": {
        "source": "from um_rel.work import fn\n",
        "files": {
            "um_rel/__init__.py": "from . import tool\n",
            "um_rel/work.py": "def fn(x):\n    from .tool import scale\n    return scale(x)\n",
            "um_rel/tool.py": "def scale(x):\n    return x * 9.0\n",
        },
        "edits": [("um_rel/tool.py", "9.0", "8.0")],
    },
    "star_import": {
        "source": "from um_star import *\n\ndef fn(x):\n    return scale(x)\n",
        "files": {"um_star.py": "K = 2.0\n\ndef scale(x):\n    return x * K\n"},
        "edits": [("um_star.py", "2.0", "5.0")],
    },
    "package_attribute": {
        "source": "import um_top.sub.leaf\n\ndef fn(x):\n    return um_top.sub.leaf.scale(x)\n",
        "files": {
            "um_top/__init__.py": "",
            "um_top/sub/__init__.py": "",
            "um_top/sub/leaf.py": "def scale(x):\n    return x * 9.0\n",
        },
        "edits": [("um_top/sub/leaf.py", "9.0", "8.0")],
    },
    "getattr_by_name": {
        "source": "import um_get\n\ndef fn(x):\n    return getattr(um_get, 'scale')(x)\n",
        "files": {"um_get.py": "def scale(x):\n    return x * 9.0\n"},
        "edits": [("um_get.py", "9.0", "8.0")],
    },
    "module_escapes": {
        "source": "import um_esc\n\ndef use(m, x):\n    return m.scale(x)\n\ndef fn(x):\n    return use(um_esc, x)\n",
        "files": {"um_esc.py": "import math\nK = 9.0\n\ndef scale(x):\n    return x * K + math.pi\n"},
        "edits": [("um_esc.py", "9.0", "8.0")],
    },
    "walked_module": {
        "source": """
import um_walked

def fn(x):
    for name, value in vars(um_walked).items():
        x = x if name.startswith("_") else value(x)
    return x
""",
        "files": {"um_walked.py": "def double(x):\n    return x * 2\n\ndef plus(x):\n    return x + 1\n"},
        "edits": [
            (
                "um_walked.py",
                "double(x):\n    return x * 2\n\ndef plus(x):\n    return x + 1",
                "plus(x):\n    return x + 1\n\ndef double(x):\n    return x * 2",
            ),
            ("um_walked.py", "def plus", "def _plus"),
        ],
    },
    "listed_module": {
        "source": "import um_listed\n\ndef fn(x):\n    return um_listed.__dict__.get('plus', um_listed.double)(x)\n",
        "files": {"um_listed.py": "def double(x):\n    return x * 2\n\ndef _plus(x):\n    return x + 1\n"},
        "edits": [("um_listed.py", "_plus", "plus")],
    },
    "names_in_order": {
        "source": """
import functools

K = functools.partial(print)
K.one, K.two = 3.0, 5.0

class A:
    pass

A.itself = A
A.last = 2.0

def fn(x):
    for value in vars(K).values():
        x = x * 2 + value
    for name, value in vars(A).items():
        x = x if name.startswith("_") else x * 2 + (value is A)
    return x
""",
        "edits": [
            ("K.one, K.two = 3.0, 5.0", "K.two, K.one = 5.0, 3.0"),
            ("A.last = 2.0", "A.next = 2.0"),
            ("A.itself = A\nA.last = 2.0", "A.last = 2.0\nA.itself = A"),
        ],
    },
    "state_that_no_step_restores": {
        "source": """
import threading
import numpy as np

LOCK, ERROR, MASKED = threading.Lock(), ValueError(3.0), np.ma.array([9.0], mask=[False], hard_mask=True)
LOCK.acquire()
ERROR.__cause__ = KeyError()

def fn(x):
    return x * float(MASKED[0]) + ERROR.args[0] + (ERROR.__suppress_context__ is None) + (LOCK.locked is None)
""",
        "edits": [("9.0", "8.0"), ("LOCK.acquire()", ""), ("KeyError()", "None"), (", hard_mask=True", "")],
    },
    "eval_reads": {
        "source": "K = 9.0\n\ndef helper(x):\n    return x * K\n\ndef fn(x):\n    return eval('helper(x)')\n",
        "edits": [("9.0", "8.0"), ("helper(x)')", "helper(x) + 1')")],
    },
    "exec_made": {
        "source": "names = {}\nexec('K = 9.0\\ndef fn(x):\\n    return x * K\\n', names)\nfn = names['fn']\n",
        "edits": [("9.0", "8.0")],
    },
    "closure": {
        "source": "def make(k):\n    def fn(x):\n        local_v = x * k\n        return local_v\n"
        "    return fn\n\nfn = make(9.0)\n",
        "edits": [("9.0", "8.0"), ("x * k", "x + k")],
    },
    "closure_over_function": {
        "source": "def make(g):\n    def fn(x):\n        return g(x) + 1\n    return fn\n\n"
        "def double(x):\n    return x * 9.0\n\nfn = make(double)\n",
        "edits": [("9.0", "8.0")],
    },
    "closure_over_set": {
        "source": "def make(names):\n    def fn(x):\n        return x * len(names) + ('b' in names)\n"
        "    return fn\n\nfn = make({'a', 'b', 'cc', 'dd', 1, (2, 'x'), None, 9.0})\n",
        "edits": [("9.0", "8.0"), ("'b' in", "'b' not in")],
    },
    "nonlocal_counter": {
        "source": "def make():\n    n = 9.0\n    def fn(x):\n        nonlocal n\n        n = n + 0\n"
        "        return x * n\n    return fn\n\nfn = make()\n",
        "edits": [("9.0", "8.0")],
    },
    "nested_functions": {
        "source": "def fn(x):\n    def inner(y):\n        '''DOC'''\n        def most(z):\n"
        "            local_v = z * 9.0\n            return local_v\n        return most(y) + 1\n"
        "    return inner(x)\n",
        "edits": [("9.0", "8.0")],
    },
    "recursive": {
        "source": "DEPTH = 4\n\ndef fn(x, n=DEPTH):\n    return x if n == 0 else fn(x, n - 1) * 2\n",
        "edits": [("= 4", "= 5"), ("* 2", "* 3")],
    },
    "mutually_recursive": {
        "source": "def even(x, n):\n    return x if n == 0 else odd(x, n - 1)\n\n"
        "def odd(x, n):\n    return x + 9.0 if n == 0 else even(x, n - 1)\n\n"
        "def fn(x):\n    return even(x, 5)\n",
        "edits": [("9.0", "8.0"), (", 5)", ", 4)")],
    },
    "generators": {
        "source": "def steps(n):\n    for local_v in range(n):\n        yield local_v * 9.0\n\n"
        "def fn(x):\n    return x + sum(steps(3)) + sum(i for i in range(4))\n",
        "edits": [("9.0", "8.0"), ("range(4)", "range(5)")],
    },
    "comprehensions": {
        "source": "K = 9.0\n\ndef fn(x):\n    rows = [i * K for i in range(3)]\n"
        "    table = {str(i): v for i, v in enumerate(rows)}\n"
        "    return x + sum(table.values()) + len({v for v in rows})\n",
        "edits": [("9.0", "8.0")],
    },
    "defaults": {
        "source": "def fn(x, k=9.0, *, m=2.0, names=('a', 'b')):\n    return x * k + m + len(names)\n",
        "edits": [("9.0", "8.0"), ("m=2.0", "m=3.0"), ("('a', 'b')", "('a',)")],
    },
    "annotated": {
        "source": "import jax\n\nclass Note:\n    pass\n\n"
        "def fn(x: jax.Array, note: Note | None = None) -> 'jax.Array':\n"
        "    local_v: jax.Array = x * 9.0\n    return local_v\n",
        "edits": [("9.0", "8.0")],
    },
    "annotations_read": {
        "source": "def helper(x: 'nine', y: 2.0):\n    return x\n\ndef fn(x):\n"
        "    return x * helper.__annotations__['y']\n",
        "edits": [("2.0", "3.0")],
    },
    "docstring_read": {
        "source": "def helper(x):\n    '''nine'''\n    return x\n\ndef fn(x):\n    return x * len(helper.__doc__)\n",
        "edits": [("'''nine'''", "'''seven'''")],
    },
    "decorated": {
        "source": "import functools\n\ndef deco(k):\n    def wrap(f):\n"
        "        @functools.wraps(f)\n        def inner(*args):\n            return f(*args) * k\n"
        "        return inner\n    return wrap\n\n@deco(9.0)\ndef fn(x):\n    '''DOC'''\n"
        "    return x + 1\n",
        "edits": [("9.0", "8.0"), ("+ 1", "+ 2")],
    },
    "partial_": {
        "source": "import functools\n\ndef base(k, x, *, m):\n    return x * k + m\n\n"
        "fn = functools.partial(base, 9.0, m=2.0)\n",
        "edits": [("9.0", "8.0"), ("m=2.0", "m=3.0"), ("x * k", "x - k")],
    },
    "singledispatch": {
        "source": "import functools\n\n@functools.singledispatch\ndef scale(v, x):\n    return x\n\n"
        "@scale.register(float)\ndef _(v, x):\n    return x * v\n\n"
        "@scale.register(int)\ndef _(v, x):\n    return x + v\n\n"
        "def fn(x):\n    return scale(9.0, x) + scale(2, x)\n",
        "edits": [("9.0", "8.0"), ("x * v", "x - v")],
    },
    "lru_cached": {
        "source": "import functools\n\n@functools.lru_cache(maxsize=None)\ndef table(n):\n"
        "    return n * 9.0\n\ndef fn(x):\n    return x * table(3)\n",
        "edits": [("9.0", "8.0"), ("maxsize=None", "maxsize=3")],
    },
    "global_containers": {
        "source": "CFG = {'lr': 9.0, 'layers': [1, 2, {'deep': (3, 4)}], 'set': {'u', 'v', 'w'}}\n\n"
        "def fn(x):\n    return x * CFG['lr'] + CFG['layers'][2]['deep'][1] + len(CFG['set'])\n",
        "edits": [("9.0", "8.0"), ("(3, 4)", "(3, 5)"), ("'w'", "'z'")],
    },
    "cyclic_containers": {
        "source": "A = [1.0]\nB = {'a': A, 'k': 9.0}\nA.append(B)\nA.append((A, B))\n\n"
        "def fn(x):\n    return x * A[1]['k'] + A[2][0][0]\n",
        "edits": [("9.0", "8.0"), ("[1.0]", "[2.0]")],
    },
    "set_constant": {
        "source": "def fn(x):\n    return x * (9.0 if 'b' in {'a', 'b', 'c', 'd', 'e'} else 1.0)\n",
        "edits": [("9.0", "8.0"), ("'e'}", "'f'}")],
    },
    "set_of_functions": {
        "source": "def a(x):\n    return x * 9.0\n\ndef b(x):\n    return x + 1\n\n"
        "OPS = {a, b}\nFROZEN = frozenset({a, b, a})\n\n"
        "def fn(x):\n    return sum(f(x) for f in OPS) + len(FROZEN)\n",
        "edits": [("9.0", "8.0")],
    },
    "sentinel": {
        "source": "MISSING = object()\n\ndef helper(x, k=MISSING):\n"
        "    return x * 9.0 if k is MISSING else x * k\n\n"
        "def fn(x):\n    return helper(x) + helper(x, 2)\n",
        "edits": [("9.0", "8.0")],
    },
    "many_constants": {
        "source": "def fn(x):\n    '''DOC'''\n    table = ["
        + ", ".join(f"{i}.5" for i in range(300))
        + "]\n    return x * table[7] * table[290]\n",
        "edits": [("7.5", "7.25"), ("290.5", "291.5")],
    },
    "exceptions": {
        "source": "class Bad(ValueError):\n    '''DOC'''\n    k = 9.0\n\ndef fn(x):\n    try:\n"
        "        raise Bad('no')\n    except Bad as error:\n        return x * error.k\n",
        "edits": [("9.0", "8.0")],
    },
    "lock_and_logger": {
        "source": "import logging\nimport threading\n\nLOCK = threading.Lock()\n"
        "LOG = logging.getLogger('user.log')\n\ndef fn(x):\n    with LOCK:\n"
        "        LOG.debug('in')\n    return x * 9.0\n",
        "edits": [("9.0", "8.0")],
    },
    "compiled_regex": {
        "source": "import re\n\nDIGITS = re.compile('[0-9]+')\n\ndef fn(x):\n"
        "    return x * float(DIGITS.search('a9b').group())\n",
        "edits": [("a9b", "a8b"), ("[0-9]+", "[0-8,9]+")],
    },
    "ordered_and_default_dicts": {
        "source": "import collections\n\nD = collections.defaultdict(list)\nD['a'].append(9.0)\n"
        "O = collections.OrderedDict(b=1.0, a=2.0)\nQ = collections.deque([3.0], maxlen=4)\n"
        "C = collections.Counter('aab')\n\ndef fn(x):\n"
        "    return x * D['a'][0] + next(iter(O.values())) + Q[0] + C['a']\n",
        "edits": [("9.0", "8.0"), ("b=1.0, a=2.0", "a=2.0, b=1.0"), ("'aab'", "'aaab'")],
    },
    "patched_module": {
        "source": "import math\n\ndef triple(x):\n    return x * 9.0\n\nmath.triple = triple\n\n"
        "def fn(x):\n    return math.triple(x) + math.pi\n",
        "edits": [("9.0", "8.0")],
    },
    "module_getattr": {
        "source": "import um_lazy\n\ndef fn(x):\n    return x * um_lazy.value\n",
        "files": {
            "um_lazy.py": "def __getattr__(name):\n    if name == 'value':\n        return 9.0\n"
            "    raise AttributeError(name)\n"
        },
        "edits": [("um_lazy.py", "9.0", "8.0")],
    },
    "match_statement": {
        "source": "class P:\n    __match_args__ = ('a', 'b')\n    def __init__(self, a, b):\n"
        "        self.a, self.b = a, b\n\ndef fn(x):\n    match P(1, 9.0):\n"
        "        case P(1, k):\n            return x * k\n    return x\n",
        "edits": [("9.0", "8.0"), ("('a', 'b')", "('b', 'a')")],
    },
}
