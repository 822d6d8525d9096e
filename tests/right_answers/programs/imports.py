"""Imports in the bodies of functions, in the layouts that packages have."""

import functools
import importlib.util
import sys
from pathlib import Path

import before
import loaded_as
import main_reader
from starred import *  # noqa: F403
from usual.work import (
    Derived,
    Model,
    absolute,
    decorated,
    module,
    named,
    nested,
    through_init,
    through_lambda,
)

HERE = Path(__file__).parent

WARM = [
    "case_import_package",
    "case_import_submodule",
    "case_import_submodule_as",
    "case_module_from_package",
    "case_name_from_package",
    "case_name_from_submodule",
    "case_name_from_submodule_as",
    "case_imported_before",
    "case_exported_under_another_name",
    "case_lone_name",
    "case_star_at_module_level",
    "case_star_in_package",
    "case_several_imports",
    "case_import_in_branch",
    "case_import_in_loop",
    "case_relative_name",
    "case_relative_module",
    "case_absolute_in_package",
    "case_relative_from_init",
    "case_relative_in_method",
    "case_relative_in_class_method",
    "case_relative_in_static_method",
    "case_relative_in_property",
    "case_relative_in_callable_object",
    "case_relative_in_static_argument",
    "case_relative_in_derived_class",
    "case_relative_in_nested_function",
    "case_relative_under_lambda",
    "case_relative_in_partial",
    "case_relative_in_decorated",
    "case_relative_from_above_inside",
    "case_module_under_a_name_that_hides_it",
    "case_module_with_a_name_of_its_own_name",
    "case_lazy_attribute_of_module",
    "case_lazy_attribute_missing",
    "case_circle_through_init",
    "case_lazy_import_met_from_below",
    "case_class_of_an_argument",
    "case_changed_after_the_import",
    "case_module_under_another_name",
    "case_submodule_under_another_name",
    "case_module_loaded_under_another_name",
    "case_main",
    "case_missing_module",
    "case_missing_submodule",
    "case_missing_name",
    "case_missing_installed_module",
    "case_submodule_that_another_imported",
    "case_submodule_that_another_imported_from",
    "case_shared_state",
    "case_installed_in_body",
]


# ---- absolute


def case_import_package(jit):
    def f(x):
        import usual

        return usual.k(x)

    return jit(f)(2.0)


def case_import_submodule(jit):
    def f(x):
        import usual.h

        return usual.h.k(x)

    return jit(f)(2.0)


def case_import_submodule_as(jit):
    def f(x):
        import usual.h as q

        return q.k(x)

    return jit(f)(2.0)


def case_module_from_package(jit):
    def f(x):
        from usual import h

        return h.k(x)

    return jit(f)(2.0)


def case_name_from_package(jit):
    def f(x):
        from usual import K, k

        return k(x) + K

    return jit(f)(2.0)


def case_name_from_submodule(jit):
    def f(x):
        from usual.h import k

        return k(x)

    return jit(f)(2.0)


def case_name_from_submodule_as(jit):
    def f(x):
        from usual.consts import K as factor
        from usual.h import k as scale

        return scale(x) + factor

    return jit(f)(2.0)


def case_imported_before(jit):
    def f(x):
        from before.h import k

        return k(x) + before.k(x)

    return jit(f)(2.0)


def case_exported_under_another_name(jit):
    def f(x):
        from before import exported
        from before.h import k

        return exported(x) + (1 if exported is k else 0)

    return jit(f)(2.0)


def case_lone_module(jit):
    def f(x):
        import zz_lone

        return zz_lone.k(x)

    return jit(f)(2.0)


def case_lone_name(jit):
    def f(x):
        from zz_lone import K
        from zz_lone import k as scale

        return scale(x) + K

    return jit(f)(2.0)


def case_star_at_module_level(jit):
    return jit(lambda x: k(x))(2.0)  # noqa: F405


def case_star_in_package(jit):
    def f(x):
        import starred

        return starred.k(x) + starred._hidden + hasattr(starred, "VISIBLE")

    return jit(f)(2.0)


def case_several_imports(jit):
    def f(x):
        import before.h
        import usual
        import usual.consts

        return before.h.k(x) + usual.k(x) + usual.consts.K

    return jit(f)(2.0)


def case_import_in_branch(jit):
    def f(x, how):
        if how == "usual":
            from usual.h import k
        else:
            from before.h import k
        return k(x)

    jitted = jit(f, static_argnames="how")
    return jitted(2.0, how="usual"), jitted(2.0, how="before")


def case_import_in_loop(jit):
    def f(x):
        for _ in range(3):
            from usual.h import k

            x = k(x)
        return x

    return jit(f)(2.0)


# ---- relative


def case_relative_name(jit):
    return jit(named)(2.0)


def case_relative_module(jit):
    return jit(module)(2.0)


def case_absolute_in_package(jit):
    return jit(absolute)(2.0)


def case_relative_from_init(jit):
    return jit(through_init)(2.0)


def case_relative_in_method(jit):
    return jit(Model().method)(2.0)


def case_relative_in_class_method(jit):
    return jit(Model.of_class)(2.0)


def case_relative_in_static_method(jit):
    return jit(Model.of_nobody)(2.0)


def case_relative_in_property(jit):
    return jit(Model().uses_property)(2.0)


def case_relative_in_callable_object(jit):
    return jit(Model(3.0))(2.0)


def case_relative_in_static_argument(jit):
    return jit(lambda model, x: model(x), static_argnums=0)(Model(3.0), 2.0)


def case_relative_in_derived_class(jit):
    return jit(Derived().method)(2.0)


def case_relative_in_nested_function(jit):
    return jit(nested)(2.0)


def case_relative_under_lambda(jit):
    return jit(through_lambda)(2.0)


def case_relative_in_partial(jit):
    return jit(functools.partial(named))(2.0), jit(functools.partial(Model.method, Model(5.0)))(2.0)


def case_relative_in_decorated(jit):
    return jit(decorated)(2.0)


def case_relative_from_above(jit):
    from deep.inner import leaf

    return jit(leaf.on_leaf)(2.0), jit(leaf.from_parent)(2.0), jit(leaf.Layer())(2.0)


def case_relative_from_above_inside(jit):
    def f(x):
        from deep.inner.leaf import Layer, from_parent, on_leaf

        return on_leaf(x), from_parent(x), Layer()(x)

    return jit(f)(2.0)


# ---- layouts


def case_name_hides_submodule(jit):
    def f(x):
        from hiding import scale

        return scale(x)

    return jit(f)(2.0)


def case_module_under_a_name_that_hides_it(jit):
    def f(x):
        import hiding.scale
        from hiding.scale import scale

        return scale(x) + (1 if hiding.scale is scale else 0)

    return jit(f)(2.0)


def case_module_with_a_name_of_its_own_name(jit):
    def f(x):
        from hiding import shift
        from hiding.shift import shift as by

        return x + shift.shift + by

    return jit(f)(2.0)


def case_lazy_attribute(jit):
    def f(x):
        from lazy import SIZE, k

        return k(x) + SIZE

    return jit(f)(2.0)


def case_lazy_attribute_of_module(jit):
    def f(x):
        import lazy

        return lazy.k(x) + hasattr(lazy, "nothing")

    return jit(f)(2.0)


def case_lazy_attribute_missing(jit):
    def f(x):
        try:
            from lazy import nothing
        except ImportError:
            return x
        return nothing(x)

    return jit(f)(2.0)


def case_computed_attribute(jit):
    def f(x):
        import computed
        from computed import by_3

        return by_3(x) + computed.by_4(x)

    return jit(f)(2.0)


def case_namespace_package(jit):
    def f(x):
        import spaced.mod
        from spaced import mod
        from spaced.mod import k

        return k(x) + mod.k(x) + spaced.mod.k(x)

    return jit(f)(2.0)


def case_namespace_package_below(jit):
    def f(x):
        import spaced.sub.leaf as leaf

        return leaf.kk(x)

    return jit(f)(2.0)


def case_circle(jit):
    def f(x):
        from circle.b import of_b

        return of_b(x)

    return jit(f)(2.0)


def case_circle_through_init(jit):
    def f(x):
        from circle import a, of_b

        return a.of_a(x) + of_b(x)

    return jit(f)(2.0)


def case_lazy_import_of_own_submodule(jit):
    def f(x):
        import late

        return late.run(x)

    return jit(f)(2.0)


def case_lazy_import_met_from_below(jit):
    def f(x):
        from late.extra import shift

        return shift(x)

    return jit(f)(2.0)


def case_optional_dependency(jit):
    def f(x):
        import optional

        return optional.k(x) + (1 if optional.missing is None else 0)

    return jit(f)(2.0)


def case_registry(jit):
    def f(x):
        from registry import KINDS

        return [KINDS[name](x) for name in sorted(KINDS)]

    return jit(f)(2.0)


def case_registry_filled_by_the_body(jit):
    def f(x):
        import plugins
        import plugins.kinds

        return plugins.KINDS["double"](x) + len(plugins.KINDS)

    return jit(f)(2.0)


def case_classes(jit):
    def f(x):
        from classes import Base, Derived
        from classes.base import Base as Same

        return Derived().run(x) + issubclass(Derived, Same) + (Base is Same)

    return jit(f)(2.0)


def case_class_of_an_argument(jit):
    from classes.derived import Derived as Given

    def f(model, x):
        from classes import Base, Derived

        return model.run(x) + isinstance(model, Base) + 10 * isinstance(model, Derived)

    return jit(f, static_argnums=0)(Given(), 2.0)


def case_changed_after_the_import(jit):
    import changed.h

    def f(x):
        from changed.h import k

        return k(x)

    values = []
    for factor in (1.0, 10.0, 1.0):
        changed.h.K = factor
        values.append(jit(lambda x: f(x))(2.0))
    return values


# ---- names of modules


def case_module_under_another_name(jit):
    sys.modules["other_name"] = before
    try:

        def f(x):
            import other_name

            return other_name.k(x)

        return jit(f)(2.0)
    finally:
        del sys.modules["other_name"]


def case_submodule_under_another_name(jit):
    import usual.h

    sys.modules["usual.alias"] = usual.h
    try:

        def f(x):
            from usual.alias import k

            return k(x)

        return jit(f)(2.0)
    finally:
        del sys.modules["usual.alias"]


def case_module_loaded_under_another_name(jit):
    spec = importlib.util.spec_from_file_location("loaded_otherwise", HERE / "loaded_as.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return jit(loaded.k)(2.0), jit(loaded_as.k)(2.0)


def case_main(jit):
    return jit(main_reader.has_main)(2.0)


def case_import_module(jit):
    def f(x):
        return importlib.import_module("usual.h").k(x)

    return jit(f)(2.0)


def case_import_module_relative(jit):
    def f(x):
        return importlib.import_module(".h", "usual").k(x)

    return jit(f)(2.0)


def case_dunder_import(jit):
    def f(x):
        return __import__("usual.h").h.k(x) + __import__("usual.h", fromlist=["k"]).k(x)

    return jit(f)(2.0)


def case_lookup_in_loaded_modules(jit):
    import usual.h

    return jit(lambda x: sys.modules["usual.h"].k(x) + usual.K)(2.0)


# ---- what is not there


def case_missing_module(jit):
    def f(x):
        try:
            import not_there
        except ImportError:
            return x
        return not_there.k(x)

    return jit(f)(2.0)


def case_missing_submodule(jit):
    def f(x):
        try:
            import usual.not_there
        except ModuleNotFoundError as error:
            return x + len(error.name)
        return usual.not_there.k(x)

    return jit(f)(2.0)


def case_missing_name(jit):
    def f(x):
        try:
            from usual.h import not_there
        except ImportError:
            from usual.h import k as not_there
        return not_there(x)

    return jit(f)(2.0)


def case_missing_installed_module(jit):
    def f(x):
        try:
            import numpy.not_there
        except ModuleNotFoundError:
            return x
        return numpy.not_there.k(x)

    return jit(f)(2.0)


def case_raises_import_error(jit):
    def f(x):
        from usual.h import not_there

        return not_there(x)

    return jit(f)(2.0)


def case_raises_missing_module(jit):
    def f(x):
        import usual.not_there

        return usual.not_there.k(x)

    return jit(f)(2.0)


# ---- what a module says of itself


def case_names_of_modules(jit):
    def f(x):
        import usual.h
        from deep.inner import leaf

        names = [usual.__name__, usual.h.__name__, usual.__package__, usual.h.__package__, leaf.__package__]
        return x + len(",".join(names)), x * len(usual.k.__module__)

    return jit(f)(2.0)


# ---- what another imported


def case_submodule_that_another_imported(jit):
    import aside.h

    def f(x):
        import aside

        return aside.h.k(x)

    return jit(f)(2.0), jit(lambda x: aside.h.k(x))(2.0)


def case_submodule_that_another_imported_from(jit):
    import aside.h

    def f(x):
        from aside import h

        return h.k(x) + hasattr(aside, "not_there")

    return jit(f)(2.0)


def case_shared_state(jit):
    import usual.h

    table = {usual.h.k: 3.0, usual.h: 4.0}

    def f(x):
        import usual.h
        from usual.h import k

        return x * table[k] + table[usual.h]

    return jit(f)(2.0)


def case_failing_module(jit):
    def f(x):
        for _ in range(2):
            try:
                import failing
            except ImportError:
                x = x + 1
            else:
                return failing.k(x)
        return x

    return jit(f)(2.0)


def case_installed_in_body(jit):
    def f(x):
        import jax.numpy as jnp
        import numpy.linalg
        from jax import lax
        from jax.scipy.special import logsumexp

        return jnp.sin(x) + lax.abs(x) + logsumexp(x) + numpy.linalg.norm([3.0, 4.0])

    return jit(f)(2.0)
