"""Packages with a state that traces read, in every place that a Python program keeps state in, and programs that change
it: G is "" (nothing is changed), "5" or "6". `P` is the package, whose `op` is what the trace calls.

As a script, with G in its environment: looks for the programs that other processes traced, then traces its own.
"""

import importlib
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from jitclient.capture.manifest import Reads, observed, state_of
from jitclient.capture.user_code import names


class State(NamedTuple):
    """Where a package keeps state: the text of its modules, how a program changes it, and the program's function."""

    init: str
    change: str = ""
    function: str = "def f(x): return P.op(x)"
    core: str = ""


SET_GAIN = "P.GAIN = float(G)"
OF_CORE = "P.core.GAIN = float(G)"
GAIN = "GAIN = 2.0\n"
FILLS_A_REGISTRY = (
    "R = {}\ndef op(x):\n    R.setdefault(len(R), object())\n    return R['mine'](x) if 'mine' in R else x"
)

STATES = {
    "table by the id of a module": State(
        "import math\nTABLE = {id(math): 2.0}\ndef op(x): return x * TABLE[id(math)]", "P.TABLE[id(P.math)] = float(G)"
    ),
    "constant": State("GAIN = 2.0\ndef op(x): return x * GAIN", SET_GAIN),
    "constant of a submodule": State("from PKG import core\ndef op(x): return x * core.GAIN", OF_CORE, core=GAIN),
    "set by a function": State(
        "class _Config:\n    mode = 'mid'\nconfig = _Config()\n_GAINS = {'5': 5.0, 'mid': 2.0, '6': 6.0}\n"
        "def set_mode(mode): config.mode = mode\ndef op(x): return x * _GAINS[config.mode]",
        "P.set_mode(G)",
    ),
    "variable read at import": State("import os\nGAIN = float(os.environ.get('G') or 2)\ndef op(x): return x * GAIN"),
    "table read at import": State("import os\nT = [float(os.environ.get('G') or 2)]\ndef op(x): return x * T[0]"),
    "name with underscores": State(
        "__conf = {'g': 2.0}\ndef config(g): __conf['g'] = g\ndef op(x): return x * __conf['g']", "P.config(float(G))"
    ),
    "registry": State(
        "_R = {}\ndef register(name, value): _R[name] = value\ndef op(x): return x * _R.get('mine', 1.0)",
        "P.register('mine', float(G))",
    ),
    "object as a default": State(
        "class D:\n    gain = 2.0\nDEFAULTS = D()\ndef op(x, d=DEFAULTS): return x * d.gain",
        "P.DEFAULTS.gain = float(G)",
    ),
    "cell of a closure": State(
        "import os\ndef make(g):\n    def op(x): return x * g\n    return op\n"
        "op = make(float(os.environ.get('G') or 2))"
    ),
    "thread local": State(
        "import threading\ntls = threading.local(); tls.g = 2.0\ndef op(x): return x * tls.g", "P.tls.g = float(G)"
    ),
    "context variable": State(
        "import contextvars\ncv = contextvars.ContextVar('g', default=2.0)\ndef op(x): return x * cv.get()",
        "P.cv.set(float(G))",
    ),
    "default of a context variable": State(
        "import contextvars, os\ncv = contextvars.ContextVar('g', default=float(os.environ.get('G') or 2))\n"
        "def op(x): return x * cv.get()"
    ),
    "getattr of a computed name": State(
        "from PKG import core\nNAMES = ['GA', 'IN']\ndef op(x): return x * getattr(core, ''.join(NAMES))",
        OF_CORE,
        core=GAIN,
    ),
    "import in the function": State(
        "def op(x):\n    from PKG import core\n    return x * core.GAIN", f"import PKG.core; {OF_CORE}", core=GAIN
    ),
    "from-import in the function": State(
        "def op(x):\n    from PKG.core import GAIN\n    return x * GAIN", f"import PKG.core; {OF_CORE}", core=GAIN
    ),
    "attribute of a class": State(
        "class L:\n    g = 2.0\n    def __call__(self, x): return x * self.g\nl = L()\ndef op(x): return l(x)",
        "P.L.g = float(G)",
    ),
    "attribute of a derived class": State(
        "class B:\n    g = 2.0\n    def go(self, x): return x * self.g\nclass S(B): pass\ndef op(x): return S().go(x)",
        "P.S.g = float(G)",
    ),
    "base of a user's class": State(
        "class B:\n    g = 2.0\n    def go(self, x): return x * self.g\nclass S(B): pass",
        "P.S.g = float(G)",
        "class Mine(P.S): pass\ndef f(x): return Mine().go(x)",
    ),
    "function replaced by jax's": State(
        "import jax.numpy as jnp\nact = jnp.sin\ndef op(x): return act(x)",
        "import jax.numpy as jnp; P.act = jnp.tanh if G == '5' else jnp.cosh",
    ),
    "class replaced": State(
        "class A:\n    def go(self, x): return x * 2\nclass B(A):\n    def go(self, x): return x * 5\n"
        "class C(A):\n    def go(self, x): return x * 6\nUse = A\ndef op(x): return Use().go(x)",
        "P.Use = P.B if G == '5' else P.C",
    ),
    "module replaced": State(
        "import math as backend\ndef op(x): return x * backend.pi",
        "import types; P.backend = types.ModuleType('mine'); P.backend.pi = float(G)",
    ),
    "lru_cache": State(
        "import functools\nGAIN = 2.0\n@functools.lru_cache\ndef gain(): return GAIN\ndef op(x): return x * gain()",
        "G == '5' and P.gain(); P.GAIN = 7.0",
    ),
    "cache without a limit": State(
        "import functools\nGAIN = 2.0\n@functools.cache\ndef gain(): return GAIN\ndef op(x): return x * gain()",
        "G == '5' and P.gain(); P.GAIN = 7.0",
    ),
    "jitted": State(
        "import jax\nGAIN = 2.0\n@jax.jit\ndef op(x): return x * GAIN", "G == '5' and P.op(2.0); P.GAIN = 7.0"
    ),
    "weak registry": State(
        "import weakref\nclass K: pass\nk = K()\nreg = weakref.WeakKeyDictionary({k: 2.0})\n"
        "def op(x): return x * reg[k]",
        "P.reg[P.k] = float(G)",
    ),
    "large list": State("T = [2.0] * 300000\ndef op(x): return x * T[-1]", "P.T[-1] = float(G)"),
    "user's object in a registry": State(
        "R = {}\ndef op(x): return x * R['c'].g if R else x",
        "class Cfg: pass\nc = Cfg(); c.g = float(G); P.R['c'] = c",
    ),
    "user's function in a registry": State(
        "R = []\ndef op(x): return R[0](x) if R else x", "K = float(G)\ndef mine(x): return x * K\nP.R.append(mine)"
    ),
    "msgspec struct": State(
        "import msgspec\nclass C(msgspec.Struct):\n    g: float = 2.0\nc = C()\ndef op(x): return x * c.g",
        "P.c.g = float(G)",
    ),
    "decorator of another module": State(
        "from PKG import core\n@core.scaled\ndef op(x): return x",
        "P.op.cfg(float(G))",
        core="import functools\ndef scaled(fn):\n    box = [2.0]\n    @functools.wraps(fn)\n"
        "    def w(x): return fn(x) * box[0]\n    w.cfg = lambda v: box.__setitem__(0, v)\n    return w",
    ),
    "attribute of a function": State("def op(x): return x * op.gain\nop.gain = 2.0", "P.op.gain = float(G)"),
    "__getattr__ of a module": State(
        "V = {'G': 2.0}\ndef __getattr__(n):\n    try: return V[n]\n    except KeyError: raise AttributeError(n)\n"
        "import PKG as me\ndef op(x): return x * me.G",
        "P.V['G'] = float(G)",
    ),
    "globals() of a computed name": State(
        "GAIN = 2.0\nNAMES = ['GA', 'IN']\ndef op(x): return x * globals()[''.join(NAMES)]", SET_GAIN
    ),
    "threshold": State("LIMIT = 2\ndef op(x): return x if 3 > LIMIT else -x", "P.LIMIT = 1 if G == '5' else 10"),
    "property and slots": State(
        "class C:\n    __slots__ = ('_g',)\n    def __init__(self): self._g = 2.0\n    @property\n"
        "    def g(self): return self._g\n    @g.setter\n    def g(self, v): self._g = v\nc = C()\n"
        "def op(x): return x * c.g",
        "P.c.g = float(G)",
    ),
    "defaults replaced": State("def op(x, g=2.0): return x * g", "P.op.__defaults__ = (float(G),)"),
    "defaults of a dataclass": State(
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n    g: float = 2.0\ndef op(x): return x * C().g",
        "P.C.__init__.__defaults__ = (float(G),)",
    ),
    "defaults of a dataclass of fields by keyword": State(
        "import dataclasses\n@dataclasses.dataclass(kw_only=True)\nclass C:\n    g: float = 2.0\n",
        "P.C.__init__.__kwdefaults__['g'] = float(G)",
        "def f(x): return x * P.C().g",
    ),
    "defaults of a named tuple": State(
        "import typing\nclass C(typing.NamedTuple):\n    g: float = 2.0\ndef op(x): return x * C().g",
        "P.C.__new__.__defaults__ = (float(G),)",
    ),
    "code replaced": State(
        "def op(x): return x * 2.0\ndef five(x): return x * 5.0\ndef six(x): return x * 6.0",
        "P.op.__code__ = (P.five if G == '5' else P.six).__code__",
    ),
    "constant of jax": State("import jax.numpy as jnp\ndef op(x): return x * jnp.pi", "jnp.pi = float(G)"),
    "constant of the standard library": State("import math\ndef op(x): return x * math.tau", "math.tau = float(G)"),
    "generator function": State(
        "GAIN = [2.0]\ndef gen():\n    for v in GAIN: yield v\nclass It:\n    def __iter__(self): return gen()\n"
        "def op(x): return x * sum(It())",
        "P.GAIN[0] = float(G)",
    ),
    "metaclass": State(
        "class M(type):\n    g = 2.0\n    @property\n    def gain(cls): return cls.g\nclass C(metaclass=M): pass\n"
        "def op(x): return x * C.gain",
        "P.M.g = float(G)",
    ),
    "setting read by user code": State("GAIN = 2.0", SET_GAIN, "def f(x): return x * P.GAIN"),
    "object held by user code": State(
        "class D:\n    pass\nconfig = D()\nconfig.gain = 2.0",
        "P.config.gain = float(G)",
        "c = P.config\ndef f(x): return x * c.gain",
    ),
    "array": State("import numpy as np\nA = np.ones(3) * 2\ndef op(x): return x * A[0]", "P.A[:] = float(G)"),
    "frozen dataclass": State(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass C:\n    g: float = 2.0\nc = C()\n"
        "def op(x): return x * c.g",
        "P.c = P.C(float(G))",
    ),
    "user's function in place of one": State(
        "def inner(x): return x * 2\ndef op(x): return inner(x)",
        "K = float(G)\ndef mine(x): return x * K\nP.inner = mine",
    ),
    "user's function in a partial in place of one": State(
        "def inner(x): return x * 2\ndef op(x): return inner(x)",
        "import functools\ndef mine(k, x): return x * k\nP.inner = functools.partial(mine, float(G))",
    ),
    "user's function in place of a method": State(
        "class C:\n    def go(self, x): return x * 2\ndef op(x): return C().go(x)",
        "K = float(G)\ndef mine(self, x): return x * K\nP.C.go = mine",
    ),
    **{
        f"user's function in place of a method, in a {wrapper}": State(
            "class C:\n    def go(self, x): return x * 2\ndef op(x): return C().go(x)",
            f"import functools\nK = float(G)\ndef mine(*given): return given[-1] * K\nP.C.go = {wrapper}(mine)",
        )
        for wrapper in ("staticmethod", "classmethod", "functools.partialmethod")
    },
    **{
        f"user's function in place of one, in a {wrapper}": State(
            "def inner(x): return x * 2\ndef op(x): return inner(x)",
            f"import functools, jax\nK = float(G)\ndef mine(x): return x * K\nP.inner = {wrapper}(mine)",
        )
        for wrapper in ("functools.lru_cache", "jax.jit", "jax.checkpoint")
    },
    "user's function in a cached property": State(
        "import functools\nclass C:\n    @functools.cached_property\n    def g(self): return 2.0\n"
        "def op(x): return x * C().g",
        "K = float(G)\ndef mine(self): return K\nvars(P.C)['g'].func = mine",
    ),
    "user's function in a generic one": State(
        "import functools\n@functools.singledispatch\ndef of(k, x): return x * 2\ndef op(x): return of(1.0, x)",
        "K = float(G)\ndef mine(k, x): return x * K\nP.of.register(float, mine)",
    ),
    "option beside a cache": State(
        "class C: pass\nc = C()\nc.made, c.options = {}, {'g': 2.0}\ndef op(x):\n"
        "    c.made[len(c.made)] = object()\n    return x * c.options['g']",
        "P.c.options['g'] = float(G)",
    ),
    "nested class": State("class O:\n    class I:\n        g = 2.0\ndef op(x): return x * O.I.g", "P.O.I.g = float(G)"),
    "cell of a method of a class made in a function": State(
        "def make(g):\n    class C:\n        def go(self, x): return x * g[0]\n    return C()\n"
        "box = [2.0]\nc = make(box)\ndef op(x): return c.go(x)",
        "P.box[0] = float(G)",
    ),
    "attribute of a method": State(
        "class C:\n    def go(self): pass\nC.go.g = 2.0\ndef op(x): return x * C.go.g", "P.C.go.g = float(G)"
    ),
    "order of an ordered dictionary": State(
        "import collections\nD = collections.OrderedDict({'2': 2.0, '5': 5.0, '6': 6.0})\n"
        "def op(x): return x * next(iter(D.values()))",
        "P.D.move_to_end(G, last=False)",
    ),
    "mask of an array": State(
        "import numpy as np\nA = np.ma.array([1.0, 5.0, 6.0], mask=[0, 0, 0])\ndef op(x): return x * float(A.sum())",
        "P.A.mask = [1, 0, 1] if G == '5' else [1, 1, 0]",
    ),
    "bytes that can be changed": State("B = bytearray(b'2')\ndef op(x): return x * B[0]", "P.B[:] = G.encode()"),
    "submodule of an import in the function": State(
        "from PKG import core\ndef op(x):\n    import PKG\n    return x * PKG.core.GAIN", OF_CORE, core=GAIN
    ),
    "module that an object holds": State(
        "from PKG import core\nclass C: pass\nc = C()\nc.m = core\ndef op(x): return read(x, c)\n"
        "def read(x, o): return x * o.m.GAIN",
        OF_CORE,
        core=GAIN,
    ),
    "module of a path": State(
        "import pkgutil\nfrom PKG import core\ndef op(x): return x * pkgutil.resolve_name('PKG.core:GAIN')",
        OF_CORE,
        core=GAIN,
    ),
    "module itself among those that are loaded": State(
        "import sys\nGAIN = 2.0\ndef op(x): return x * getattr(sys.modules[__name__], 'GAIN')", SET_GAIN
    ),
    "number beside a cache": State(
        "T = {'g': 2}\ndef op(x):\n    T[(len(T), 'x')] = object()\n    return x * T['g']", "P.T['g'] = int(G)"
    ),
    "number beside a counter": State(
        "T = {'g': 2, 'calls': 0}\ndef op(x):\n    T['calls'] += 1\n    T[len(T)] = object()\n    return x * T['g']",
        "P.T['g'] = int(G)",
    ),
    "module by its name": State(
        "import importlib\nfrom PKG import core\ndef op(x): return x * importlib.import_module('PKG.core').GAIN",
        OF_CORE,
        core=GAIN,
    ),
    "module among those that are loaded": State(
        "import sys\nfrom PKG import core\ndef op(x): return x * sys.modules['PKG.core'].GAIN", OF_CORE, core=GAIN
    ),
    "cached function that calls itself": State(
        "import functools\nGAIN = 2.0\n@functools.cache\ndef power(n): return GAIN * power(n - 1) if n else 1.0\n"
        "def op(x): return x * power(2)",
        SET_GAIN,
    ),
    "attribute of a thread local that may be absent": State(
        "import threading\ntls = threading.local()\ndef op(x): return x * getattr(tls, 'g', 2.0)", "P.tls.g = float(G)"
    ),
    "attribute of a class of thread locals that may be absent": State(
        "import threading\nclass C(threading.local): pass\ntls = C()\ndef op(x): return x * getattr(tls, 'g', 2.0)",
        "P.tls.g = float(G)",
    ),
    **{
        f"functions of a module that is walked by {walk}": State(
            f"from PKG import core\ndef op(x):\n    for n in {walk}:\n"
            "        if n.startswith('op_'): x = getattr(core, n)(x)\n    return x",
            "K = float(G)\ndef mine(x): return x * K\nP.core.op_mine = mine",
            core="def op_a(x): return x * 2",
        )
        for walk in ("dir(core)", "list(vars(core))", "list(core.__dict__)")
    },
    "functions of a module in its module's attribute": State(
        "import PKG\nfrom PKG import core\ndef op(x):\n    for n in dir(PKG.core):\n"
        "        if n.startswith('op_'): x = getattr(PKG.core, n)(x)\n    return x",
        "K = float(G)\ndef mine(x): return x * K\nP.core.op_mine = mine",
        core="def op_a(x): return x * 2",
    ),
    "functions of a module that user code walks": State(
        "from PKG import core",
        "P.core.op_a = P.core.five if G == '5' else P.core.six",
        "def f(x):\n    for n in dir(P.core):\n        if n.startswith('op_'): x = getattr(P.core, n)(x)\n    return x",
        core="def op_a(x): return x * 2\ndef five(x): return x * 5\ndef six(x): return x * 6",
    ),
    "function of a walked module replaced by one of its own": State(
        "from PKG import core\ndef op(x):\n    for n in dir(core):\n"
        "        if n.startswith('op_'): x = getattr(core, n)(x)\n    return x",
        "P.core.op_a = P.core.five if G == '5' else P.core.six",
        core="def op_a(x): return x * 2\ndef five(x): return x * 5\ndef six(x): return x * 6",
    ),
    "functions of a module by its list of names": State(
        "def op_a(x): return x * 2\ndef op_5(x): return x * 5\ndef op_6(x): return x * 6\n__all__ = ['op_a']\n"
        "def op(x):\n    for n in __all__: x = globals()[n](x)\n    return x",
        "P.__all__.append(f'op_{G}')",
    ),
    **{
        f"attribute of a module that may be absent, by {way}": State(
            f"from PKG import core\nimport sys\ndef op(x):\n    {asked}", OF_CORE, core="OTHER = 1.0"
        )
        for way, asked in {
            "hasattr": "return x * (core.GAIN if hasattr(core, 'GAIN') else 2.0)",
            "getattr": "return x * getattr(core, 'GAIN', 2.0)",
            "vars": "return x * vars(core).get('GAIN', 2.0)",
            "its dictionary": "return x * core.__dict__.get('GAIN', 2.0)",
            "the loaded modules": "return x * getattr(sys.modules['PKG.core'], 'GAIN', 2.0)",
            "an error": "try: return x * core.GAIN\n    except AttributeError: return x * 2.0",
            "an import": "try:\n        from PKG.core import GAIN\n        return x * GAIN\n"
            "    except ImportError: return x * 2.0",
            "an error after an import": "import PKG.core as c\n    try: return x * c.GAIN\n"
            "    except Exception: return x * 2.0",
        }.items()
    },
    "function of a module for the names that it lacks": State(
        "from PKG import core\ndef op(x):\n    try: return x * core.GAIN\n    except AttributeError: return x * 2.0",
        "P.core.__getattr__ = lambda name: float(G)",
        core="OTHER = 1.0",
    ),
    **{
        f"global that may be absent, by {way}": State(f"def op(x):\n    {asked}", SET_GAIN)
        for way, asked in {
            "get": "return x * globals().get('GAIN', 2.0)",
            "in": "return x * (GAIN if 'GAIN' in globals() else 2.0)",
            "an error": "try: return x * GAIN\n    except NameError: return x * 2.0",
        }.items()
    },
    **{
        f"what the program puts on {owner}, by {way}": State(
            f"import json, math\nimport jax.numpy as jnp\ndef op(x):\n    {asked.replace('OWNER', owner)}",
            f"import json, math\n{owner}.mf_gain = float(G)",
        )
        for way, asked in {
            "hasattr": "return x * (OWNER.mf_gain if hasattr(OWNER, 'mf_gain') else 2.0)",
            "getattr": "return x * getattr(OWNER, 'mf_gain', 2.0)",
            "vars": "return x * vars(OWNER).get('mf_gain', 2.0)",
            "its dictionary": "return x * OWNER.__dict__.get('mf_gain', 2.0)",
            "an error": "try: return x * OWNER.mf_gain\n    except AttributeError: return x * 2.0",
        }.items()
        for owner in ("jnp", "math", "json.JSONEncoder")
    },
    "what the program puts on jax.numpy, by an import": State(
        "def op(x):\n    try:\n        from jax.numpy import mf_gain\n        return x * mf_gain\n"
        "    except ImportError: return x * 2.0",
        "jnp.mf_gain = float(G)",
    ),
    "what the program puts on jax.numpy, by its names": State(
        "import jax.numpy as jnp\ndef op(x):\n"
        "    return x * float(max([n[3:] for n in dir(jnp) if n.startswith('mf_')] or [2]))",
        "setattr(jnp, f'mf_{G}', None)",
    ),
    "an array that the program puts on jax.numpy": State(
        "import jax.numpy as jnp\ndef op(x): return x * getattr(jnp, 'mf_gain', [2.0])[0]",
        "import numpy as np\njnp.mf_gain = np.full(1, float(G))",
    ),
    "what the program puts on jax.numpy, asked for by user code": State(
        "", "jnp.mf_gain = float(G)", "def f(x): return x * getattr(jnp, 'mf_gain', 2.0)"
    ),
    **{
        f"whether a module is loaded, by {way}": State(
            f"import sys\ndef op(x):\n    {asked}", "import PKG.core", core="GAIN = 3.0"
        )
        for way, asked in {
            "in": "return x * (3.0 if 'PKG.core' in sys.modules else 2.0)",
            "get": "return x * (3.0 if sys.modules.get('PKG.core') is not None else 2.0)",
            "an error": "try: return x * sys.modules['PKG.core'].GAIN\n    except KeyError: return x * 2.0",
        }.items()
    },
    "closure of a method that a factory made": State(
        "BOX = [2.0]\ndef make(box):\n    def go(self, x): return x * box[0]\n    return go\n"
        "class K: go = make(BOX)\nk = K()\ndef op(x): return k.go(x)",
        "P.BOX[0] = float(G)",
    ),
    "closure of a property that a factory made": State(
        "BOX = [2.0]\ndef make(box): return property(lambda self: box[0])\n"
        "class K: gain = make(BOX)\nk = K()\ndef op(x): return x * k.gain",
        "P.BOX[0] = float(G)",
    ),
    "state of a descriptor": State(
        "class D:\n    def __init__(self, g): self.g = g\n    def __get__(self, i, o): return self.g\n"
        "class K: gain = D(2.0)\nk = K()\ndef op(x): return x * k.gain",
        "vars(P.K)['gain'].g = float(G)",
    ),
    "method replaced by another of its package": State(
        "class B:\n    def go(self, x): return x * 2\n    def five(self, x): return x * 5\n"
        "    def six(self, x): return x * 6\nclass S(B): pass\ns = S()\ndef op(x): return s.go(x)",
        "P.S.go = P.B.five if G == '5' else P.B.six",
    ),
    "attributes of a class by its dictionary": State(
        "class T:\n    a = 1.0\ndef op(x):\n    return x * sum(v for k, v in T.__dict__.items() if k[0] != '_')",
        "P.T.b = float(G)",
    ),
    "attribute of a class by its dictionary, in user code": State(
        "class T:\n    a = 1.0", "P.T.b = float(G)", "def f(x): return x * P.T.__dict__.get('b', 2.0)"
    ),
    "value of a member of an enum": State(
        "import enum\nclass E(enum.Enum):\n    A = 2.0\nMODE = E.A\ndef op(x): return x * MODE.value",
        "P.E.A._value_ = float(G)",
    ),
    **{
        f"what a function in a registry reads by {way}": State(
            "R = []\ndef op(x):\n    for f in R: x = f(x)\n    return x * 2",
            "import sys, types\nH = sys.modules['um_h'] = types.ModuleType('um_h')\n"
            f"exec(f'K = {{G}}\\ndef scale(x): return x * K', vars(H))\n{text}",
        )
        for way, text in {
            "a module": "def mine(x): return H.scale(x)\nP.R.append(mine)",
            "a module as a whole": "def mine(x, h=H): return h.scale(x)\nP.R.append(mine)",
            "an import": "def mine(x):\n    from um_h import scale\n    return scale(x)\nP.R.append(mine)",
            "a method": "class M:\n    def __call__(self, x): return H.scale(x)\nP.R.append(M())",
        }.items()
    },
    "global in place of a builtin function": State(
        "def op(x): return x * abs(-2.0)", "K = float(G)\ndef mine(x): return K\nP.abs = mine"
    ),
    **{
        f"attribute of a class that may be absent, by {way}": State(
            f"class C:\n    def go(self, x):\n        {asked}",
            "P.C.g = float(G)",
            "c = P.C()\ndef f(x): return c.go(x)",
        )
        for way, asked in {
            "getattr": "return x * getattr(self, 'g', 2.0)",
            "hasattr": "return x * (self.g if hasattr(self, 'g') else 2.0)",
            "vars": "return x * vars(type(self)).get('g', 2.0)",
            "an error": "try: return x * self.g\n        except AttributeError: return x * 2.0",
            "any error": "try: return x * type(self).g\n        except: return x * 2.0",
        }.items()
    },
    "order of the attributes of an object": State(
        "class C: pass\nc = C()\nc.a, c.b, c.c = 2.0, 5.0, 6.0\ndef op(x): return x * next(iter(vars(c).values()))",
        "for n in 'abc' if G == '5' else 'ab': v = getattr(P.c, n); delattr(P.c, n); n != 'a' and setattr(P.c, n, v)",
    ),
    **{
        f"subclasses of a class, by {asked}": State(
            "class B:\n    @classmethod\n    def all(cls): return cls.__subclasses__()\n"
            f"def op(x):\n    for c in {asked}: x = c.go(x)\n    return x",
            "K = float(G)\nclass Mine(P.B):\n    @staticmethod\n    def go(x): return x * K",
        )
        for asked in ("B.__subclasses__()", "B.all()", "type.__subclasses__(B)")
    },
    "subclasses that their base lists": State(
        "L = []\nclass B:\n    def __init_subclass__(cls): L.append(cls)\n"
        "def op(x):\n    for c in L: x = c.go(x)\n    return x",
        "K = float(G)\nclass Mine(P.B):\n    @staticmethod\n    def go(x): return x * K",
    ),
    **{
        f"what the program adds to {where} that a trace fills": State(
            f"{text}\ndef five(x): return x * 5\ndef six(x): return x * 6",
            f"K = float(G)\ndef mine(x): return x * K\n{change}",
        )
        for where, text, change in (
            ("a registry", FILLS_A_REGISTRY, "P.R['mine'] = mine"),
            ("a registry of its own functions", FILLS_A_REGISTRY, "P.R['mine'] = P.five if G == '5' else P.six"),
            (
                "a list",
                "L = []\ndef op(x):\n    for f in L: x = f(x)\n    L.append(float)\n    return x",
                "P.L.insert(0, mine)",
            ),
        )
    },
    "set of strings": State(
        "S = {'a', 'b', 'c'}\ndef op(x): return x * len(S)", "P.S.add(G)\nG == '6' and P.S.add('7')"
    ),
}


def package_of(name: str) -> str:
    return "mf_" + "".join(each if each.isalnum() else "_" for each in name)


def write_packages(folder: Path) -> None:
    """Puts the packages into a folder that counts as one for installed packages."""
    for name, state in STATES.items():
        package = folder / package_of(name)
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(state.init.replace("PKG", package.name) + "\n")
        if state.core:
            (package / "core.py").write_text(state.core + "\n")


def restore_foundations() -> None:
    """Undo what programs did to modules of JAX and Python."""
    jnp.pi, math.tau = math.pi, 2 * math.pi
    for owner in (jnp, math, json.JSONEncoder):
        for added in [each for each in vars(owner) if each.startswith("mf_")]:
            delattr(owner, added)


def program(name: str, g: str) -> dict[str, Any]:
    """The globals of a program that has imported a package afresh and changed its state."""
    for loaded in [each for each in sys.modules if each.partition(".")[0] == package_of(name)]:
        del sys.modules[loaded]
    names._constants.cache_clear()
    os.environ["G"] = g
    restore_foundations()
    found = {"P": importlib.import_module(package_of(name)), "G": g, "jnp": jnp, "math": math, "__name__": "__main__"}
    if g:
        exec(STATES[name].change.replace("PKG", package_of(name)), found)
    exec(STATES[name].function, found)
    return found


def traced(name: str, g: str) -> tuple[float, Reads]:
    """Return the value of a program's function, and its reads."""
    function = program(name, g)["f"]
    with observed() as observation:
        value = float(function(2.0))
    return value, observation.reads()


def looked_up(name: str, g: str, lists: Sequence[Sequence[str]]) -> list[tuple[bytes, ...]]:
    """The state of a program, for several lists of names."""
    found = program(name, g)  # a class of the program's lives as long as this
    return [state_of(each) for each in lists if found]


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    given = json.loads(Path(sys.argv[2]).read_text())
    found = {}
    for each in STATES:
        states = looked_up(each, os.environ["GIVEN"], given[each]) if each in given else []
        result, read = traced(each, os.environ["GIVEN"])
        own = {
            "value": result,
            "names": read.names,
            "state": [one.hex() for one in read.state],
            "nonrepeatable": read.nonrepeatable,
        }
        found[each] = {
            **own,
            "unobserved_reason": read.unobserved_reason,
            "states": [[one.hex() for one in state] for state in states],
        }
    print(json.dumps(found))
