"""Settings that libraries hold have one key in all runs: what belongs to one run is no part of them.

The libraries are stand-ins with the classes and attributes of omegaconf 2.3, wandb 0.31 and pydantic 2.14.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import CaptureError

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

COMPILED = """
class SchemaValidator:
    def __init__(self, cls):
        self.ref = f"{cls.__name__}:{id(cls)}"
"""

DECORATORS = """
class Decorator:
    __slots__ = ("cls_ref",)
    def __init__(self, cls):
        self.cls_ref = f"{cls.__name__}:{id(cls)}"
"""

PYDANTIC = """
from pydantic._internal._decorators import Decorator
from pydantic_core._pydantic_core import SchemaValidator

class ModelMetaclass(type):
    def __init__(cls, *given):
        cls.__pydantic_core_schema__ = {"ref": f"{cls.__name__}:{id(cls)}"}
        cls.__pydantic_validator__ = SchemaValidator(cls)
        cls.__pydantic_decorators__ = {"positive": Decorator(cls)}
class BaseModel(metaclass=ModelMetaclass):
    def __init__(self, **fields):
        self.__dict__.update(fields)
        object.__setattr__(self, "__pydantic_fields_set__", set(fields))
    __slots__ = ("__dict__", "__pydantic_fields_set__")
    def __getstate__(self):
        return {"__dict__": self.__dict__, "__pydantic_fields_set__": self.__pydantic_fields_set__}
    def __setstate__(self, state):
        self.__dict__.update(state["__dict__"])
        object.__setattr__(self, "__pydantic_fields_set__", state["__pydantic_fields_set__"])
    @property
    def model_fields_set(self):
        return self.__pydantic_fields_set__
"""

MODEL = """
import attrs, {home} as pydantic

class Config(pydantic.BaseModel):
    pass

@attrs.frozen(cache_hash=True)
class Layer:
    width: int = 2
    name: str = "a"

cfg, layer = Config(lr=2, name="a", steps=3), Layer()
hash(layer)
def step(x):
    return x * cfg.lr + layer.width
def shown(x):
    return [x for name in cfg.model_fields_set]
def checked(x):
    return cfg.__pydantic_validator__.ref
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
    sources = {
        "omegaconf/base.py": OMEGACONF,
        "wandb/sdk/wandb_config.py": WANDB,
        "pydantic/main.py": PYDANTIC,
        "pydantic/_internal/_decorators.py": DECORATORS,
        "pydantic_core/_pydantic_core.py": COMPILED,
    }
    for name, source in sources.items():
        for package in [site / parent for parent in Path(name).parents][:-1]:
            package.mkdir(parents=True, exist_ok=True)
            (package / "__init__.py").touch()
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


@pytest.mark.slow
def test_addresses_and_hashes_are_no_part_of_models(libraries: None, write: Any, tmp_path: Path) -> None:
    script = MODEL.format(home="pydantic.main")
    module = write(um_model=script)
    file = tmp_path / "prints.py"
    file.write_text(f"{script}\nfrom jitclient.capture.dump import capture\nprint(capture(step).key)\n")
    path = os.pathsep.join([str(tmp_path / "site-packages"), os.environ.get("PYTHONPATH", "")])
    variables = [{**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    keys = {subprocess.check_output([sys.executable, file], env=each, text=True) for each in variables}
    assert len(keys) == 1
    assert load(capture(module.step).payload).fn(3) == 8
    assert capture(module.step).set_order is None
    assert capture(module.shown).set_order is not None
    with pytest.raises(CaptureError, match="pydantic compiled"):
        load(capture(module.checked).payload).fn(3)
