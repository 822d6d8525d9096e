"""The environment of a whole process: which differences from the daemon's a program is warned of, and how often."""

import warnings

import msgspec
import pytest

from jitclient.core.settings import Settings
from jitclient.session import process_settings
from jitclient.session.handshake import reach
from jitclient.wire.messages import PROTOCOL, Welcome

WELCOME = Welcome(PROTOCOL, "0.1.0", "3.11.2", {}, "cuda", 7, b"", False, 1, 0)


@pytest.mark.parametrize(
    ("ours", "theirs", "differs"),
    [
        ({}, {}, ""),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "1"}, ""),
        ({"CUDA_VISIBLE_DEVICES": "1"}, {}, "CUDA_VISIBLE_DEVICES is '1' here and '' there"),
        ({}, {"CUDA_VISIBLE_DEVICES": "1"}, ""),
        ({}, {"NVIDIA_TF32_OVERRIDE": "1"}, "NVIDIA_TF32_OVERRIDE is '' here and '1' there"),
        ({"JAX_PLATFORMS": "cpu"}, {"JAX_PLATFORMS": "cuda"}, ""),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=8 --xla_x"}, {"XLA_FLAGS": "--xla_x"}, ""),
        ({"XLA_FLAGS": "--xla_x"}, {}, "XLA_FLAGS is '--xla_x' here and '' there"),
        (
            {"XLA_CLIENT_MEM_FRACTION": ".5", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"},
            {"XLA_CLIENT_MEM_FRACTION": ".9"},
            "XLA_CLIENT_MEM_FRACTION is '.5' here and '.9' there, "
            "XLA_PYTHON_CLIENT_ALLOCATOR is 'platform' here and '' there",
        ),
    ],
)
def test_what_has_no_effect_here_or_changes_values_is_a_difference(
    ours: dict[str, str], theirs: dict[str, str], differs: str
) -> None:
    assert process_settings.difference(ours, theirs) == differs


def test_a_program_is_warned_of_a_difference_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_settings, "_notified", set[str]())
    there = msgspec.structs.replace(WELCOME, settings={"NVIDIA_TF32_OVERRIDE": "0"})
    with pytest.warns(RuntimeWarning, match="NVIDIA_TF32_OVERRIDE is '1' here and '0' there.*jitserver restart"):
        process_settings.notify_once(there, {"NVIDIA_TF32_OVERRIDE": "1"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        process_settings.notify_once(there, {"NVIDIA_TF32_OVERRIDE": "1"})


def test_the_handshake_compares_with_the_environment_of_the_daemon(
    daemon: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_settings, "_notified", set[str]())
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    with pytest.warns(RuntimeWarning, match="NVIDIA_TF32_OVERRIDE is '1' here and '' there"):
        reach(Settings(address=daemon)).connection.close()
