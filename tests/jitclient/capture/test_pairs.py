"""Pairs of programs that differ in one thing: the key must tell, or must not."""

import sys
import types

import pytest

from jitclient.capture.dump import capture

NP = "import numpy as np\n"
FT = "import functools\n"
CLASS_K = "class A:\n    k = 1\n"

DIFFERENT = {
    "int_bool": ("K = 1\ndef fn(x): return K", "K = True\ndef fn(x): return K"),
    "int_float": ("K = 1\ndef fn(x): return K", "K = 1.0\ndef fn(x): return K"),
    "sign_of_zero": ("K = 0.0\ndef fn(x): return K", "K = -0.0\ndef fn(x): return K"),
    "sign_of_constant": ("def fn(x): return 0.0", "def fn(x): return -0.0"),
    "constant_bool": ("def fn(x): return (1, 2)", "def fn(x): return (True, 2)"),
    "str_bytes": ("K = 'a'\ndef fn(x): return K", "K = b'a'\ndef fn(x): return K"),
    "tuple_list": ("K = (1, 2)\ndef fn(x): return K", "K = [1, 2]\ndef fn(x): return K"),
    "set_frozenset": ("K = {1}\ndef fn(x): return K", "K = frozenset({1})\ndef fn(x): return K"),
    "dict_order": (
        "K = {'a': 1, 'b': 2}\ndef fn(x): return K",
        "K = {'b': 2, 'a': 1}\ndef fn(x): return K",
    ),
    "shared_list": (
        "A = [1]\nK = [A, A]\ndef fn(x): return K",
        "K = [[1], [1]]\ndef fn(x): return K",
    ),
    "shared_global": (
        "A = [1]\nB = A\ndef fn(x): return A, B",
        "A = [1]\nB = [1]\ndef fn(x): return A, B",
    ),
    "shared_sentinel": (
        "S = object()\nT = S\ndef fn(x): return S is T",
        "S = object()\nT = object()\ndef fn(x): return S is T",
    ),
    "shared_cell": (
        "def make():\n a = [1]\n return (lambda: a), (lambda: a)\nF, G = make()\ndef fn(x): return F, G",
        "def make():\n a = [1]\n return lambda: a\nF, G = make(), make()\ndef fn(x): return F, G",
    ),
    "builtin_shadowed": (
        "def fn(x): return max(x, 1)",
        "def max(a, b): return a\ndef fn(x): return max(x, 1)",
    ),
    "name": ("def fn(x): return x", "def other(x): return x\nfn = other"),
    "argument_name": ("def fn(x): return x", "def fn(y): return y"),
    "keyword_only": ("def fn(x, a=1): return x", "def fn(x, *, a=1): return x"),
    "positional_only": ("def fn(x, a): return x", "def fn(x, /, a): return x"),
    "default_mutated": (
        "def fn(x, a=[]): return a",
        "def fn(x, a=[]): return a\nfn.__defaults__[0].append(1)",
    ),
    "keyword_default_replaced": (
        "def fn(x, *, a=1): return a",
        "def fn(x, *, a=1): return a\nfn.__kwdefaults__['a'] = 2",
    ),
    "function_attribute": (
        "def fn(x): return fn.k\nfn.k = 1",
        "def fn(x): return fn.k\nfn.k = 2",
    ),
    "class_attribute_later": (
        f"{CLASS_K}def fn(x): return A.k",
        f"{CLASS_K}A.k = 2\ndef fn(x): return A.k",
    ),
    "method_replaced": (
        "class A:\n def m(s): return 1\ndef fn(x): return A().m()",
        "class A:\n def m(s): return 1\nA.m = lambda s: 2\ndef fn(x): return A().m()",
    ),
    "order_of_bases": (
        "class A: k = 1\nclass B: k = 2\nclass C(A, B): pass\ndef fn(x): return C.k",
        "class A: k = 1\nclass B: k = 2\nclass C(B, A): pass\ndef fn(x): return C.k",
    ),
    "kind_of_method": (
        "class A:\n @classmethod\n def m(c): return 1\ndef fn(x): return A.m",
        "class A:\n @staticmethod\n def m(c): return 1\ndef fn(x): return A.m",
    ),
    "slot_unset": (
        "class A: __slots__ = 'k', 'm'\na = A(); a.k = 1\ndef fn(x): return a",
        "class A: __slots__ = 'k', 'm'\na = A(); a.k = 1; a.m = 2\ndef fn(x): return a",
    ),
    "enum_alias": (
        "import enum\nclass E(enum.Enum):\n A = 1\n B = 2\ndef fn(x): return E.A",
        "import enum\nclass E(enum.Enum):\n A = 1\n B = 1\ndef fn(x): return E.A",
    ),
    "array_dtype": (
        f"{NP}K = np.ones(2, 'f4')\ndef fn(x): return K",
        f"{NP}K = np.ones(2, 'f8')\ndef fn(x): return K",
    ),
    "array_shape": (
        f"{NP}K = np.ones((2, 1))\ndef fn(x): return K",
        f"{NP}K = np.ones((1, 2))\ndef fn(x): return K",
    ),
    "array_order": (
        f"{NP}K = np.ones((2, 2))\ndef fn(x): return K",
        f"{NP}K = np.ones((2, 2), order='F')\ndef fn(x): return K",
    ),
    "array_gaps": (
        f"{NP}K = np.ones(3)\ndef fn(x): return K",
        f"{NP}K = np.ones(6)[::2]\ndef fn(x): return K",
    ),
    "array_backwards": (
        f"{NP}K = np.ones(3)\ndef fn(x): return K",
        f"{NP}K = np.ones(3)[::-1]\ndef fn(x): return K",
    ),
    "array_of_objects_order": (
        f"{NP}K = np.array([[1, None], [2, 3]])\ndef fn(x): return K",
        f"{NP}K = np.array([[1, None], [2, 3]], order='F')\ndef fn(x): return K",
    ),
    **{
        f"local_name_{number}": tuple(text.replace("NAME", name) for name in ("alpha", "beta"))
        for number, text in enumerate(
            [
                "def fn(x):\n NAME = x\n return locals()",
                "L = locals\ndef fn(x):\n NAME = x\n return L()",
                "def names(f): return f.__code__.co_freevars\n"
                "def fn(x):\n NAME = x\n def inner(): return NAME\n return names(inner)",
                "import operator\nNAMES = operator.attrgetter('__code__.co_freevars')\n"
                "def fn(x):\n NAME = x\n def inner(): return NAME\n return NAMES(inner)",
                "import inspect\ndef fn(x):\n NAME = x\n def f(): return NAME\n return inspect.getclosurevars(f)",
                "def fn(x):\n NAME = x\n try: raise ValueError\n"
                " except ValueError as e: return e.__traceback__.tb_frame.f_locals",
            ]
        )
    },
    **{
        f"attribute_set_on_{name}": tuple(
            f"{made}\n{more}def fn(x): return getattr(K, 'k', 2)" for more in ("", "K.k = 1\n")
        )
        for name, made in {
            "cached_function": f"{FT}@functools.cache\ndef K(): return 1",
            "cached_property": f"{FT}K = functools.cached_property(abs)",
            "chain_map": "import collections\nK = collections.ChainMap({1: 2})",
            "class_method": "K = classmethod(abs)",
            "counter": "import collections\nK = collections.Counter('a')",
            "dispatching_method": f"{FT}def g(self): return 1\nK = functools.singledispatchmethod(g)",
            "member_of_int_enum": "import enum\nclass E(enum.IntEnum): A = 1\nK = E.A",
            "member_of_enum": "import enum\nclass E(enum.Enum): A = 1\nK = E.A",
            "new_type": "import typing\nK = typing.NewType('K', int)",
            "static_method": "K = staticmethod(abs)",
            # Of later versions, nothing shows the attributes.
            **({"type_variable": "import typing\nK = typing.TypeVar('K')"} if sys.version_info < (3, 12) else {}),
            "weak_dict": "import weakref\nK = weakref.WeakValueDictionary()",
            "weak_set": "import weakref\nK = weakref.WeakSet()",
        }.items()
    },
    "attribute_data_of_a_counter": tuple(
        f"import collections\nK = collections.Counter('a')\n{more}def fn(x): return getattr(K, 'data', 2)"
        for more in ("", "K.data = 1\n")
    ),
    "private_attribute_of_a_member": tuple(
        f"import enum\nclass E(enum.Enum): A = 1\n{more}def fn(x): return getattr(E.A, '_k_', 2)"
        for more in ("", "E.A._k_ = 1\n")
    ),
    **{
        f"annotation_read_by_{name}": tuple(
            f"import functools, inspect\ndef g(v{of}): pass\n{fn}" for of in (": int", "")
        )
        for name, fn in {
            "full_spec": "def fn(x): return inspect.getfullargspec(g).annotations",
            "signature_of": "def fn(x): return inspect.Signature.from_callable(g)",
            "dispatch": "def fn(x): return functools.singledispatch(print).register(g)",
        }.items()
    },
    "large_table_of_python": tuple(
        f"import html.entities as h\nh.name2codepoint['gain'] = {k}\ndef fn(x): return h.name2codepoint.get('gain')"
        for k in (1, 2)
    ),
    "unpacked_alias": ("K = tuple[int]\ndef fn(x): return K", "K = next(iter(tuple[int]))\ndef fn(x): return K"),
    "writable_view": (
        "K = memoryview(bytes(4))\ndef fn(x): return K",
        "K = memoryview(bytearray(4))\ndef fn(x): return K",
    ),
    "variance": (
        "import typing\nK = typing.ParamSpec('K')\ndef fn(x): return K",
        "import typing\nK = typing.ParamSpec('K', covariant=True)\ndef fn(x): return K",
    ),
    "array_byte_order": (
        f"{NP}K = np.ones(2, '<f4')\ndef fn(x): return K",
        f"{NP}K = np.ones(2, '>f4')\ndef fn(x): return K",
    ),
    "array_scalar": (
        f"{NP}K = np.float32(1)\ndef fn(x): return K",
        f"{NP}K = np.asarray(1, 'f4')\ndef fn(x): return K",
    ),
    "array_read_only": (
        f"{NP}K = np.ones(2)\ndef fn(x): return K",
        f"{NP}K = np.ones(2)\nK.flags.writeable = False\ndef fn(x): return K",
    ),
    "partial_attribute": (
        f"{FT}def fn(x): return K.a\nK = functools.partial(fn); K.a = 1",
        f"{FT}def fn(x): return K.a\nK = functools.partial(fn); K.a = 2",
    ),
    "order_of_globals": (
        "K = 1\nL = 2\ndef fn(x): return list(globals())",
        "L = 2\nK = 1\ndef fn(x): return list(globals())",
    ),
    "names_for_star": (
        "K = 1\ndef fn(x): return globals().get('__all__')",
        "K = 1\ndef fn(x): return globals().get('__all__')\n__all__ = ['fn']",
    ),
    "partial_keyword": (
        f"{FT}def g(a): return a\nfn = functools.partial(g, 1)",
        f"{FT}def g(a): return a\nfn = functools.partial(g, a=1)",
    ),
    "installed_function": (
        "import math\nK = math.sin\ndef fn(x): return K(x)",
        "import math\nK = math.cos\ndef fn(x): return K(x)",
    ),
    "installed_module": (
        "import math as m\ndef fn(x): return m.sin(x)",
        "import cmath as m\ndef fn(x): return m.sin(x)",
    ),
    "eval_in_string": (
        "K = 1\ndef fn(x): return eval('K')",
        "K = 2\ndef fn(x): return eval('K')",
    ),
    "eval_of_builtins": (
        "import builtins\nK = 1\ndef fn(x): return builtins.eval('K')",
        "import builtins\nK = 2\ndef fn(x): return builtins.eval('K')",
    ),
    **{
        f"eval_{how}": tuple(f"{source}\nK = {k}\n{fn}" for k in (1, 2))
        for how, source, fn in (
            ("of_builtins_by_another_name", "import builtins as b", "def fn(x): return b.eval('K')"),
            ("of_builtins_in_the_body", "", "def fn(x):\n import builtins as b\n return (lambda: b.eval('K'))()"),
        )
    },
    "eval_by_another_name": (
        "K = 1\ndef fn(x):\n from builtins import eval as e\n return e('K')",
        "K = 2\ndef fn(x):\n from builtins import eval as e\n return e('K')",
    ),
    "globals_read": (
        "K = 1\ndef fn(x): return globals()['K']",
        "K = 2\ndef fn(x): return globals()['K']",
    ),
    "globals_of_another": (
        "K = 1\ndef g(): pass\ndef fn(x): return g.__globals__['K']",
        "K = 2\ndef g(): pass\ndef fn(x): return g.__globals__['K']",
    ),
    "wrapped_function": (
        f"{FT}def g(x): return x\n@functools.wraps(g)\ndef fn(*a): return fn.__wrapped__(*a)",
        f"{FT}def g(x): return -x\n@functools.wraps(g)\ndef fn(*a): return fn.__wrapped__(*a)",
    ),
    "swapped_closure": (
        "def make(a, b):\n def fn(x): return a - b\n return fn\nfn = make(1, 2)",
        "def make(a, b):\n def fn(x): return a - b\n return fn\nfn = make(2, 1)",
    ),
    "swapped_locals": (
        "def fn(x):\n a = x; b = 1\n return a - b",
        "def fn(x):\n a = x; b = 1\n return b - a",
    ),
    "exception_caught": (
        "def fn(x):\n try: return 1\n except KeyError: return 2",
        "def fn(x):\n try: return 1\n except IndexError: return 2",
    ),
    "nested_constant": (
        "def fn(x):\n def g():\n  return lambda: (1, (2, 3))\n return g",
        "def fn(x):\n def g():\n  return lambda: (1, (2, 4))\n return g",
    ),
    "field_order": (
        "import dataclasses as d\n@d.dataclass\nclass A:\n a: int = 1\n b: int = 2\ndef fn(x): return A(5)",
        "import dataclasses as d\n@d.dataclass\nclass A:\n b: int = 2\n a: int = 1\ndef fn(x): return A(5)",
    ),
    "int_subclass": (
        "import enum\nclass E(enum.IntEnum): A = 1\nK = E.A\ndef fn(x): return K",
        "K = 1\ndef fn(x): return K",
    ),
    "iterator_position": (
        "import itertools\nK = itertools.count(1)\ndef fn(x): return next(K)",
        "import itertools\nK = itertools.count(2)\ndef fn(x): return next(K)",
    ),
    "generic_alias": ("K = list[int]\ndef fn(x): return K", "K = list[str]\ndef fn(x): return K"),
    "union": ("K = int | str\ndef fn(x): return K", "K = int | float\ndef fn(x): return K"),
    "forward_reference": (
        "import typing\nK = typing.ForwardRef('A')\ndef fn(x): return K",
        "import typing\nK = typing.ForwardRef('B')\ndef fn(x): return K",
    ),
    "forward_reference_of_a_class": (
        "import typing\nK = typing.ForwardRef('A')\ndef fn(x): return K",
        "import typing\nK = typing.ForwardRef('A', is_class=True)\ndef fn(x): return K",
    ),
    "new_type": (
        "import typing\nK = typing.NewType('A', int)\ndef fn(x): return K",
        "import typing\nK = typing.NewType('A', str)\ndef fn(x): return K",
    ),
    "typed_dict": (
        "import typing\nclass T(typing.TypedDict):\n a: int\ndef fn(x): return T(a=1)",
        "import typing\nclass T(typing.TypedDict, total=False):\n a: int\ndef fn(x): return T(a=1)",
    ),
    "boundary_of_flags": tuple(
        f"import enum\nclass F(enum.Flag, boundary=enum.{name}): A = 1\ndef fn(x): return F"
        for name in ("STRICT", "CONFORM")
    ),
    "hard_mask": tuple(
        f"{NP}K = np.ma.array([1.0], mask=[True], hard_mask={hard})\ndef fn(x): return K" for hard in (False, True)
    ),
    **{
        f"locked_{kind}": (
            f"import threading\nK = threading.{kind}()\ndef fn(x): return K.acquire(False)",
            f"import threading\nK = threading.{kind}()\nK.acquire()\ndef fn(x): return K.acquire(False)",
        )
        for kind in ("Lock", "RLock", "Condition")
    },
    **{
        f"{what}_of_a_logger": tuple(
            "import logging\nH = logging.NullHandler()\nK = logging.Logger('a')\nK.level = 10\n"
            f"{change}\ndef fn(x):\n"
            " return K.level, K.parent, K.propagate, K.disabled, K.filters, K.handlers, getattr(K, 'b', 0)"
            for change in ("", change)
        )
        for what, change in {
            "level": "K.setLevel(20)",
            "propagation": "K.propagate = False",
            "handlers": "K.addHandler(logging.NullHandler())",
            "filters": "K.addFilter(logging.Filter())",
            "attribute": "K.b = 1",
            "parent": "K.parent = logging.Logger('b')",
            "level_of_a_handler": "K.addHandler(H)\nH.setLevel(30)",
        }.items()
    },
    "level_of_a_logger_that_others_read": tuple(
        f"import logging\nK = logging.Logger('a', {level})\ndef fn(x, other=len): return other(K)" for level in (0, 10)
    ),
    "cause_of_an_error": (
        "K = ValueError(1)\ndef fn(x): return K.__cause__",
        "K = ValueError(1)\nK.__cause__ = KeyError(2)\ndef fn(x): return K.__cause__",
    ),
    "error_that_another_module_formats": (
        "import traceback\nK = ValueError(1)\ndef fn(x): return len(traceback.format_exception(K))",
        "import traceback\nK = ValueError(1)\nK.__cause__ = KeyError(2)\n"
        "def fn(x): return len(traceback.format_exception(K))",
    ),
    "name_in_an_error": tuple(f"K = AttributeError(1, name={name!r})\ndef fn(x): return K" for name in ("a", "b")),
    "callback_of_a_reference": tuple(
        f"import weakref\nclass A: pass\nL = A()\nK = weakref.ref(L{more})\ndef fn(x): return K, L"
        for more in ("", ", print")
    ),
    "generator_state": (
        f"{NP}K = np.random.default_rng(1)\ndef fn(x): return K",
        f"{NP}K = np.random.default_rng(2)\ndef fn(x): return K",
    ),
}

SAME = {
    "docstring_edited": ("def fn(x):\n 'a'\n return x", "def fn(x):\n 'b'\n return x"),
    "docstring_added": ("def fn(x):\n return x", "def fn(x):\n 'b'\n return x"),
    "class_docstring": (
        "class A:\n 'a'\n k = 1\ndef fn(x): return A",
        "class A:\n k = 1\ndef fn(x): return A",
    ),
    "locals": ("def fn(x):\n a = 1\n return a + x", "def fn(x):\n b = 1\n return b + x"),
    "closure_names": (
        "def make(a):\n def fn(x): return x + a\n return fn\nfn = make(1)",
        "def make(b):\n def fn(x): return x + b\n return fn\nfn = make(1)",
    ),
    "unused_global": ("K = 1\ndef fn(x): return x", "K = 2\ndef fn(x): return x"),
    "attributes_like_builtins": (
        "K = 1\ndef fn(x): return x.eval(x.globals, x.exec)",
        "K = 2\ndef fn(x): return x.eval(x.globals, x.exec)",
    ),
    "a_lock_that_is_held": (
        "import threading\nK = threading.Lock()\ndef fn(x):\n with K: return x",
        "import threading\nK = threading.Lock()\nK.acquire()\ndef fn(x):\n with K: return x",
    ),
    "attribute_of_a_logger_unread": tuple(
        f"import logging\nK = logging.Logger('a')\n{change}\ndef fn(x):\n K.info(x)\n return x"
        for change in ("", "K.b = (1 for _ in ())")
    ),
    "another_logger": tuple(
        f"import logging\nK = logging.getLogger('um_pair')\n{more}\ndef fn(x): return K.level"
        for more in ("", "logging.getLogger('um_pair_2')")
    ),
    "traceback_of_an_error": (
        "K = ValueError(1)\ndef fn(x): raise K",
        "K = ValueError(1)\ntry: raise K\nexcept ValueError: pass\ndef fn(x): raise K",
    ),
    "unused_helper": ("def g(): return 1\ndef fn(x): return x", "def fn(x): return x"),
    "interning": (
        "K = L = 'ab'\ndef fn(x): return K, L",
        "K = 'ab'\nL = ''.join(['a', 'b'])\ndef fn(x): return K, L",
    ),
    "place_of_class": (
        "class A:\n class B: k = 1\nK = A.B\ndef fn(x): return K",
        "class B: k = 1\nK = B\ndef fn(x): return K",
    ),
    "metaclass_that_raises_other_errors": tuple(
        "class M(type):\n def __getattr__(cls, name): return {}[name]\n"
        f"class A(metaclass=M): k = 1\n{more}def fn(x): return A.k"
        for more in ("", "# a comment\n")
    ),
    "annotations_unread": ("def fn(x: int): return x", "def fn(x: str): return x"),
    "definitions_moved": (
        "K = 1\ndef g(x): return x\ndef fn(x): return g(x + K)",
        "def fn(x): return g(x + K)\ndef g(x): return x\nK = 1",
    ),
    **{
        f"padding_{name}": tuple(
            f"{NP}B, K = {byte}, np.empty(2, {dtype})\n{fill}\ndef fn(x): return K, K[0]" for byte in (0, 255)
        )
        for name, dtype, fill in [
            (
                "of_long_double",
                "np.longdouble",
                "K[:] = 1.5, -0.0\nif np.finfo('g').nmant == 63: K.view('u1').reshape(2, -1)[:, 10:] = B",
            ),
            (
                "of_structure",
                "np.dtype([('a', 'i1'), ('b', 'f8')], align=True)",
                "K.view('u1')[:] = B; K['a'] = 1; K['b'] = 2",
            ),
        ]
    },
    "comment_between": ("def fn(x): return x + 1", "def fn(x):\n    # why\n    return x + 1"),
    "body_of_installed_class": (
        "import fractions\nK = fractions.Fraction(1, 3)\ndef fn(x): return K",
        "from fractions import Fraction\nK = Fraction(2, 6)\ndef fn(x): return K",
    ),
}


def key_of(source):
    module = types.ModuleType("um_pair")
    exec(compile(source, "/nowhere/um_pair.py", "exec", dont_inherit=True), vars(module))
    sys.modules["um_pair"] = module
    try:
        return capture(module.fn).key
    finally:
        del sys.modules["um_pair"]


@pytest.mark.parametrize("pair", DIFFERENT)
def test_keys_differ(pair):
    first, second = DIFFERENT[pair]
    assert key_of(first) == key_of(first)
    assert key_of(first) != key_of(second)


@pytest.mark.parametrize("pair", SAME)
def test_keys_agree(pair):
    first, second = SAME[pair]
    assert key_of(first) == key_of(second)
