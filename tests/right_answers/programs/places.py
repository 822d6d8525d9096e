"""Where a class or a function was defined is no part of a key: code that reads it sees the client's."""

import dataclasses
import zlib

import jax.numpy as jnp

WARM = [
    "case_a_dataclass_beside",
    "case_qualified_name_of_a_class",
    "case_qualified_name_of_functions",
    "case_text_of_a_dataclass",
    "case_text_of_a_nested_dataclass",
    "case_text_of_a_local_dataclass",
]


class Outer:
    class Inner:
        def seeded(self, x):
            return x + _number(type(self).__qualname__)

    @classmethod
    def placed(cls, x):
        return x + _number(cls.__module__)


@dataclasses.dataclass
class Scale:
    factor: float = 2.0

    def times(self, x):
        return x * self.factor


class Holder:
    @dataclasses.dataclass
    class Nested:
        factor: float = 3.0


def _number(text):
    return zlib.crc32(text.encode()) % 1000


def case_qualified_name_of_a_class(jit):
    return jit(Outer.Inner().seeded)(jnp.float32(0))


def case_qualified_name_of_functions(jit):
    def inner():
        return None

    return jit(lambda x: x + _number(inner.__qualname__ + Scale.times.__qualname__ + _number.__qualname__))(
        jnp.float32(0)
    )


def case_module_of_a_class(jit):
    return jit(Outer.placed)(jnp.float32(0))


def case_module_of_a_function(jit):
    return jit(lambda x: x + _number(_number.__module__))(jnp.float32(0))


def case_a_dataclass_beside(jit):
    return jit(Scale().times)(jnp.float32(1.5))


def case_text_of_a_dataclass(jit):
    return jit(lambda x: x + _number(repr(Scale())))(jnp.float32(0))


def case_text_of_a_nested_dataclass(jit):
    return jit(lambda x: x + _number(f"{Holder.Nested()}"))(jnp.float32(0))


def case_text_of_a_local_dataclass(jit):
    @dataclasses.dataclass
    class Local:
        factor: float = 4.0

    return jit(lambda x: x + _number(f"{Local()}"))(jnp.float32(0))
