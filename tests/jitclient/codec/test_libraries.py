"""Settings that libraries hold have one key in all runs: what belongs to one run is no part of them.

The libraries are stand-ins with the classes and attributes of omegaconf 2.3 and wandb 0.31.
"""

from pathlib import Path
from typing import Any

import pytest

from jitclient.codec.capture import capture, load

OMEGACONF = """
from collections import defaultdict
from dataclasses import dataclass, field

@dataclass
class Metadata:
    key: str = "root"
    resolver_cache: dict = field(default_factory=lambda: defaultdict(dict))

class DictConfig:
    def __init__(self, content):
        self.__dict__.update(_content=content, _metadata=Metadata())
    def __getattr__(self, name):
        return self.__dict__["_content"][name]
"""

WANDB = """
class Config:
    def __init__(self):
        object.__setattr__(self, "_items", {"_wandb": {}})
        object.__setattr__(self, "_callback", None)
    def __getattr__(self, name):
        return self._items[name]
    def __setattr__(self, name, value):
        self._items[name] = value
"""

USE = """
from {home} import {kind}
cfg = {kind}({given})
{fill}
def step(x):
    return x * cfg.lr
"""


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site-packages"
    for name, source in {"omegaconf/base.py": OMEGACONF, "wandb/sdk/wandb_config.py": WANDB}.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(source)
    monkeypatch.syspath_prepend(str(site))


def test_what_omegaconf_has_resolved_is_no_part_of_a_configuration(libraries: None, write: Any) -> None:
    module = write(um_config=USE.format(home="omegaconf.base", kind="DictConfig", given="{'lr': 2}", fill=""))
    captured = capture(module.step)
    module.cfg._metadata.resolver_cache["now"]["%H:%M"] = "12:00"
    assert capture(module.step).key == captured.key
    assert load(captured.payload).fn(3) == 6
    module.cfg._content["lr"] = 4
    assert capture(module.step).key != captured.key


def test_the_run_is_no_part_of_wandbs_configuration(libraries: None, write: Any) -> None:
    module = write(um_config=USE.format(home="wandb.sdk.wandb_config", kind="Config", given="", fill="cfg.lr = 2"))
    captured = capture(module.step)
    object.__setattr__(module.cfg, "_callback", open)
    module.cfg._items["_wandb"]["start"] = 1234.5
    assert capture(module.step).key == captured.key
    assert load(captured.payload).fn(3) == 6
    module.cfg.lr = 4
    assert capture(module.step).key != captured.key
