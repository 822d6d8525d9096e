"""The backend that a client's trace sees, with a stand-in for a daemon that has GPUs."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import default_backend, devices

from jitclient.calls.own_trace import OwnTrace
from jitclient.jaxside import backend_view, shardings
from jitclient.wire.messages import DeviceInfo, Spec
from jitclient.wire.shardings import Mesh

GPUS = [DeviceInfo("a large one", "gpu", 1 << 30), DeviceInfo("a large one", "gpu", 1 << 30)]

QUESTIONS = {
    "jax.default_backend()": lambda: jax.default_backend(),
    "a name bound at import": lambda: default_backend(),
    "jax.devices()": lambda: [device.platform for device in jax.devices()],
    "devices, bound at import": lambda: [device.device_kind for device in devices()],
    "jax.devices(platform)": lambda: [device.id for device in jax.devices("gpu")],
    "jax.local_devices()": lambda: [device.platform for device in jax.local_devices()],
    "counts": lambda: (jax.device_count(), jax.local_device_count()),
}
ANSWERS = {
    "jax.default_backend()": "gpu",
    "a name bound at import": "gpu",
    "jax.devices()": ["gpu", "gpu"],
    "devices, bound at import": ["a large one", "a large one"],
    "jax.devices(platform)": [0, 1],
    "jax.local_devices()": ["gpu", "gpu"],
    "counts": (2, 2),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_are_answered_for_the_daemon_while_tracing_and_only_then(question):
    ask = QUESTIONS[question]
    before = None if "platform" in question else ask()
    with backend_view.of(GPUS):
        assert ask() == ANSWERS[question]
    if before is not None:
        assert ask() == before != ANSWERS[question]


def test_other_threads_and_arrays_that_are_computed_meanwhile_are_on_the_real_device():
    answers = []
    with backend_view.of(GPUS):
        thread = threading.Thread(target=lambda: answers.append(jax.default_backend()))
        thread.start()
        thread.join()
        array = jnp.arange(3.0) + np.ones(3)
        assert {device.platform for device in array.devices()} == {"cpu"}
        assert {device.platform for device in jax.device_put(np.ones(2)).devices()} == {"cpu"}
    assert answers == ["cpu"]


def test_the_sharding_of_an_array_is_over_the_devices_of_this_process():
    here = jax.devices()
    with backend_view.of(GPUS):
        assert shardings.to_jax(None).device_set == {here[0]}
        assert shardings.to_jax(shardings.on_first()).device_set == {here[0]}
        assert list(shardings.mesh_to_jax(Mesh((("odd name", 1),), ("Auto",), (0,))).devices) == here[:1]
        assert [device.platform for device in jax.devices()] == ["gpu", "gpu"]


def test_the_program_is_made_for_the_daemon():
    def scaled(x):
        return x * (3.0 if jax.default_backend() == "gpu" else 5.0) + jnp.sum(jnp.eye(2))

    assert "3.000000e+00" in _text(scaled, "cuda", GPUS)
    assert "5.000000e+00" in _text(scaled, "cpu", [DeviceInfo("cpu", "cpu", None)])


def _text(fun, platform, infos):
    from jax import export

    arguments = (np.float32(1),)
    own = OwnTrace(lambda: jax.jit(lambda x: fun(x)), arguments, {}, arguments, (Spec((), "float32"),))
    own.run(platform, infos, None, "")
    return str(export.deserialize(bytearray(own.exported("scaled").program)).mlir_module())
