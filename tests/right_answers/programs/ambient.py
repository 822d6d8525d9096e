"""Code that reads its process: the values mean on the daemon what they mean in plain JAX."""

import builtins
import contextlib
import datetime
import decimal
import functools
import gc
import hashlib
import importlib.resources
import inspect
import locale
import logging
import multiprocessing
import os
import pkgutil
import platform
import random
import resource
import signal
import socket
import sys
import threading
import time
import urllib.parse
import uuid
import warnings
import xml.dom.minidom
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import usual

log = logging.getLogger("right_answers")
HASH = hash


def _same_here(jit, read):
    """Whether what a trace reads is what this process has, and reads again in it."""
    here = read()
    return jit(lambda x: x * (1.0 if read() == here else 0.0))(2.0)


# ---- settings that are carried


def case_errors_raise(jit):
    def f(x):
        try:
            return x * np.log(np.float64(0.0))
        except FloatingPointError:
            return x * 7

    with np.errstate(all="raise"):
        raised = jit(f)(2.0)
    return raised, jit(lambda x: f(x))(2.0)


def case_errors_read(jit):
    with np.errstate(divide="raise", under="print"):
        return jit(lambda x: x * len("".join(sorted(np.geterr().values()))))(2.0)


def case_errors_in_body(jit):
    def f(x):
        with np.errstate(divide="raise"):
            try:
                return x / np.float64(1.0) + np.divide(np.float64(1.0), np.float64(0.0))
            except FloatingPointError:
                return x * 3

    return jit(f)(2.0)


def case_printing(jit):
    def f(x):
        return x * len(str(np.array([1 / 3, 2 / 3])))

    with np.printoptions(precision=2):
        short = jit(lambda x: f(x))(2.0)
    return short, jit(f)(2.0)


def case_printing_of_jax(jit):
    with np.printoptions(precision=3, linewidth=40):
        return jit(lambda x: x * len(f"{np.arange(30.0) / 7}{np.array2string(np.ones(9) / 3)}"))(2.0)


def case_printing_with_a_function(jit):
    with np.printoptions(formatter={"float": lambda value: "a number"}):
        return jit(lambda x: x * len(str(np.ones(2))))(2.0)


def case_printing_read(jit):
    with np.printoptions(precision=3):
        return jit(lambda x: x * np.get_printoptions()["precision"])(2.0)


def case_decimals(jit):
    def f(x):
        return x * len(str(decimal.Decimal(1) / decimal.Decimal(3)))

    with decimal.localcontext() as context:
        context.prec = 6
        short = jit(lambda x: f(x))(2.0)
    return short, jit(f)(2.0)


def case_decimals_read(jit):
    with decimal.localcontext() as context:
        context.prec = 6
        return jit(lambda x: x * decimal.getcontext().prec)(2.0)


# ---- hashes and addresses


def case_hash_of_a_string(jit):
    return _same_here(jit, lambda: hash("jitserver"))


def case_hash_of_bytes(jit):
    return _same_here(jit, lambda: hash(b"jitserver") % 1000)


def case_hash_of_a_tuple(jit):
    return _same_here(jit, lambda: hash((1, ("a", 2))))


def case_hash_under_another_name(jit):
    return _same_here(jit, lambda: HASH("jitserver"))


def case_hash_mapped(jit):
    return _same_here(jit, lambda: sum(map(hash, ["a", "b"])))


def case_hash_as_key(jit):
    return _same_here(jit, lambda: sorted(["a", "b", "c", "d", "e"], key=hash))


def case_hash_of_builtins(jit):
    return _same_here(jit, lambda: builtins.hash("jitserver"))


def case_hash_of_numbers(jit):
    return jit(lambda x: x * (hash(3) + hash((1, 2.5)) % 1000 + hash(True)))(2.0)


def case_hash_swallowed(jit):
    def read():
        with contextlib.suppress(Exception):
            return hash("jitserver")
        return 0

    return _same_here(jit, read)


@dataclass(frozen=True)
class Config:
    name: str = "a"
    scale: float = 2.0


class Kind:
    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(("Kind", self.name))

    def __eq__(self, other):
        return isinstance(other, Kind) and hash(self) == hash(other)


class Apart:
    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return id(self) == id(other)


def case_hash_in_hash_methods(jit):
    def f(config, kind, x):
        table = {config: 2.0, kind: 3.0, Kind("b"): 4.0}
        return x * table[Config()] * table[Kind("a")] * table[Kind("b")]

    return jit(f, static_argnums=(0, 1))(Config(), Kind("a"), 2.0)


def case_addresses_in_hash_methods(jit):
    one, other = Apart(), Apart()
    return jit(lambda x: x * {one: 2.0, other: 3.0}[other] + (one == other))(2.0)


def case_address(jit):
    return _same_here(jit, lambda: id(sys))


# ---- what user code puts on builtins


def case_builtin_number(jit):
    builtins.SCALE = 3.0
    try:
        first = jit(lambda x: x * SCALE)(2.0)  # noqa: F821
        builtins.SCALE = 4.0
        return first, jit(lambda x: SCALE * x)(2.0)  # noqa: F821
    finally:
        del builtins.SCALE


def case_builtin_function(jit):
    builtins.profile = lambda function: function
    try:

        def f(x):
            @profile  # noqa: F821
            def inner(y):
                return y * 2

            return inner(x) + builtins.profile(3.0)

        return jit(f)(2.0)
    finally:
        del builtins.profile


def case_builtin_installed_function(jit):
    builtins.sine = np.sin
    try:
        return jit(lambda x: x * sine(1.0))(2.0)  # noqa: F821
    finally:
        del builtins.sine


def case_builtin_replaced(jit):
    real = builtins.max
    builtins.max = lambda *args: real(*args) * 10
    try:
        return jit(lambda x: x * max(1, 2))(2.0)
    finally:
        builtins.max = real


def case_builtin_array(jit):
    builtins.TABLE = np.array([1.0, 5.0])
    try:
        return jit(lambda x: x * TABLE[1] + builtins.TABLE[0])(2.0)  # noqa: F821
    finally:
        del builtins.TABLE


def case_builtin_in_a_body(jit):
    builtins.SCALE = 3.0
    try:

        def f(x):
            import puts

            return puts.scaled(x)

        return jit(f)(2.0)
    finally:
        del builtins.SCALE


def case_raises_name_error(jit):
    return jit(lambda x: x * NOT_THERE)(2.0)  # noqa: F821


# ---- the process


def case_process(jit):
    return _same_here(jit, os.getpid)


def case_parent(jit):
    return _same_here(jit, os.getppid)


def case_folder(jit):
    return _same_here(jit, os.getcwd)


def case_folder_of_path(jit):
    return _same_here(jit, lambda: str(Path.cwd()))


def case_arguments(jit):
    return _same_here(jit, lambda: list(sys.argv))


def case_replaced_arguments(jit):
    before = sys.argv
    sys.argv = ["program", "--scale=3"]
    try:
        return jit(lambda x: x * float(sys.argv[1].partition("=")[2]))(2.0)
    finally:
        sys.argv = before


def case_flags(jit):
    return _same_here(jit, lambda: (sys.flags.hash_randomization, sys.flags.utf8_mode, sys.flags.safe_path))


def case_recursion_limit(jit):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(3210)
    try:
        return jit(lambda x: x * sys.getrecursionlimit())(2.0)
    finally:
        sys.setrecursionlimit(before)


def case_switch_interval(jit):
    return _same_here(jit, sys.getswitchinterval)


def case_threads(jit):
    return _same_here(jit, threading.get_ident), _same_here(jit, lambda: threading.current_thread().name)


def case_in_a_thread(jit):
    found = []
    thread = threading.Thread(
        target=lambda: found.append(jit(lambda x: x * len(threading.current_thread().name))(2.0)), name="named"
    )
    thread.start()
    thread.join()
    return found


def case_collector(jit):
    gc.disable()
    try:
        return jit(lambda x: x * (2 if gc.isenabled() else 3))(2.0)
    finally:
        gc.enable()


def case_signals(jit):
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        return jit(lambda x: x * (3 if signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN else 2))(2.0)
    finally:
        signal.signal(signal.SIGUSR1, before)


def case_limits(jit):
    return _same_here(jit, lambda: resource.getrlimit(resource.RLIMIT_CORE))


def case_host(jit):
    return _same_here(jit, socket.gethostname), _same_here(jit, platform.node), _same_here(jit, platform.system)


def case_locale(jit):
    return _same_here(jit, lambda: locale.localeconv()["decimal_point"])


def case_cores(jit):
    return _same_here(jit, multiprocessing.cpu_count)


def case_environment(jit):
    os.environ["RIGHT_ANSWERS_SCALE"] = "3.0"
    try:
        return jit(lambda x: x * float(os.environ["RIGHT_ANSWERS_SCALE"]) + float(os.getenv("RIGHT_ANSWERS_SCALE")))(
            2.0
        )
    finally:
        del os.environ["RIGHT_ANSWERS_SCALE"]


def case_environment_absent(jit):
    return jit(lambda x: x if "RIGHT_ANSWERS_NONE" not in os.environ else x * 2)(2.0)


def case_clock(jit):
    def f(x):
        return x * (time.time() > 0) * (time.perf_counter() is not None) + (datetime.datetime.now().year > 2000)

    return jit(f)(2.0)


def case_identifier(jit):
    return jit(lambda x: x * (uuid.uuid4() != uuid.uuid4()))(2.0)


def case_generators_without_seed(jit):
    def f(x):
        drawn = [np.random.default_rng().random(), random.Random().random(), np.random.RandomState().rand()]
        return x * len({*map(float, drawn)} - {None})

    return jit(lambda x: f(x) * 1)(2.0)


def case_log_level(jit):
    log.setLevel(logging.DEBUG)
    try:

        def f(x):
            by_level = log.isEnabledFor(logging.DEBUG), log.getEffectiveLevel() == logging.DEBUG
            return x * (1 + sum(by_level))

        return jit(f)(2.0)
    finally:
        log.setLevel(logging.NOTSET)


def case_source(jit):
    def f(x):
        return x * len(inspect.getsource(Config).splitlines())

    return jit(f)(2.0)


def case_package_data(jit):
    def f(x):
        text = (importlib.resources.files("usual") / "scale.txt").read_text()
        return x * float(text) + float(pkgutil.get_data("usual", "scale.txt"))

    return jit(f)(2.0)


def case_loader(jit):
    return jit(lambda x: x * float(usual.__loader__.get_data(usual.__file__.replace("__init__.py", "scale.txt"))))(2.0)


# ---- what is of no consequence


def case_warm_warning(jit):
    def f(x):
        warnings.warn("of no consequence", stacklevel=2)
        return x * 2

    return jit(f)(2.0)


def case_warm_log(jit):
    def f(x):
        logging.getLogger(__name__).info("of no consequence: %s", x)
        log.debug("neither is this")
        return x * 2

    return jit(f)(2.0)


def case_warm_paths(jit):
    def f(x):
        name = os.path.join("a", "b.txt")
        path = Path("a") / "b.txt"
        return x * (len(os.path.basename(name)) + len(path.suffix) + len(os.path.splitext(name)) + (os.sep in name))

    return jit(f)(2.0)


def case_warm_plain_code(jit):
    def f(x):
        print("of no consequence", __name__)
        assert isinstance(x, object)
        assert callable(f)
        text = f"{[1, 2]!r}{3.5:.2f}{Config()}" + repr(Config) + str(type(x).__name__ == "a")
        return x * (1 + len(text) * 0) * getattr(Config(), "scale", 1.0) * len(__name__)

    return jit(f)(2.0)


def case_warm_seeded(jit):
    def f(x):
        drawn = np.random.default_rng(3).random() + random.Random(3).random()
        return x * drawn

    return jit(f)(2.0)


def case_warm_digest(jit):
    return jit(lambda x: x * int(hashlib.sha256(b"jitserver").hexdigest()[:4], 16))(2.0)


def case_warm_standard_library(jit):
    def f(x):
        return x * len(urllib.parse.quote("a b")) + len(xml.dom.minidom.parseString("<a/>").toxml())

    return jit(f)(2.0)


@functools.cache
def _table(n):
    return tuple(range(n))


def case_warm_caches(jit):
    return jit(lambda x: x * sum(_table(4)) + jnp.sum(jnp.arange(3)))(2.0)


WARM = [
    "case_errors_raise",
    "case_errors_read",
    "case_errors_in_body",
    "case_printing",
    "case_printing_of_jax",
    "case_printing_read",
    "case_decimals",
    "case_decimals_read",
    "case_hash_of_numbers",
    "case_hash_in_hash_methods",
    "case_addresses_in_hash_methods",
    "case_builtin_number",
    "case_builtin_function",
    "case_builtin_installed_function",
    "case_builtin_replaced",
    "case_builtin_array",
    "case_replaced_arguments",
    "case_warm_warning",
    "case_warm_log",
    "case_warm_paths",
    "case_warm_plain_code",
    "case_warm_seeded",
    "case_warm_digest",
    "case_warm_standard_library",
]
