"""XLA loads what it compiled on the same processor; once it has refused one because of the processor, that is known."""

import platform
import re

import jax
import jax.numpy as jnp
import pytest

from jitclient.jaxside import cpu_executables


@pytest.mark.skipif(platform.machine() != "x86_64", reason="about features of x86-64")
@pytest.mark.cpu(reason="XLA's compiler for CPUs")
def test_xla_loads_without_a_word_what_a_processor_with_avx512_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    compiled = jax.jit(lambda x: jnp.sin(x) * 2).lower(jnp.arange(3.0)).compile()
    backend, changed = jax.devices()[0].client, compiled.runtime_executable().serialize()
    # XLA adds two preferences to the features there. Here they replace two others, which are together as long.
    names = {b"avx512vp2intersect": b"prefer-no-scatter", b"avx512vpopcntdq": b"prefer-no-gather"}
    for feature, preference in names.items():
        changed, count = re.subn(rb",[+-]" + feature + rb"(?=,)", b",+" + preference, changed)
        assert count
    capfd.readouterr()
    assert backend.deserialize_executable(changed, backend.devices()[:1])
    assert capfd.readouterr().err == ""
    backend.deserialize_executable(changed.replace(b"+prefer-no-gather", b"+of-no-processor1"), backend.devices()[:1])
    assert "feature +of-no-processor1 is not" in capfd.readouterr().err


def test_only_a_refusal_because_of_the_processor_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_executables, "_refusal", "")
    refused = RuntimeError("INTERNAL: Target machine feature +f is missing. Compile machine features: [+64bit,+f]")
    for error, why in (
        (ValueError("the executable calls 1 functions, expected 0"), ""),
        (refused, "XLA refuses stored executables on this processor: INTERNAL: Target machine feature +f is missing."),
    ):
        with pytest.raises(type(error)), cpu_executables.loading():
            raise error
        assert cpu_executables.refusal() == why
