"""Where a version of jax lacks what an accessor uses, it does as it says. Tests of what uses them show what they do
otherwise, and the fallbacks of `register_arrays` and `stages`.
"""

from collections.abc import Callable
from typing import Any

import jax.extend.core
import pytest

from jitclient.jaxside import internals

LACKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "xla_bridge.backends_are_initialized": (internals.has_backend, True),
    "mesh.thread_resources": (internals.mesh_of_block, None),
    "config.trace_context": (lambda: (internals.trace_context()(), internals.trace_context_and_level()), (None, None)),
    "core.trace_state_strong_ref": (internals.trace_context_and_level, None),
    "core.get_opaque_trace_state": (internals.trace_state, jax.extend.core.get_opaque_trace_state),
    "xla_bridge.get_backend": (lambda: internals.replace_get_backend(pytest.fail), False),
    "source_info_util.register_exclusion": (lambda: internals.hide_from_locations("/nowhere"), None),
    "profiler._profiler": (internals.profiler, (None, None)),
    "lib.xla_client": (internals.backend_class, None),
    "api.eval_shape": (internals.forward_eval_shape, None),
    "interpreters.pxla.JitGlobalCppCacheKeys": (lambda: internals.fast_calls(len, "len", len, (), ()), None),
    "array.ArrayImpl": (lambda: internals.uncommitted(3), 3),
    "xla_bridge._discover_and_register_pjrt_plugins": (internals.find_no_plugins, None),
}
"""Missing name of jax -> the accessor that needs it, and its return value then."""


@pytest.mark.parametrize("name", LACKS)
def test_without_what_an_accessor_uses(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask, expected = LACKS[name]
    monkeypatch.delattr(f"jax._src.{name}")
    internals.trace_context.cache_clear()
    assert ask() == expected
    internals.trace_context.cache_clear()


def test_a_backend_has_begun(run_script: Any) -> None:
    source = """
        import json
        from jitclient.jaxside import internals
        found = [internals.has_backend()]
        import jax
        found.append(internals.has_backend())
        jax.devices()
        print(json.dumps([*found, internals.has_backend()]))
    """
    assert run_script(source) == [False, False, True]
