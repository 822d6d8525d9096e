"""Ambient reads during a trace."""

import linecache
from pathlib import Path

import numpy as np
import pytest

from jitclient.capture.ambient import audit
from jitclient.capture.ambient.inputs import record_read
from jitclient.errors import AmbientInput
from jitserver.programs.traces import ambient


def test_a_failure_after_a_read_is_a_read() -> None:
    def reads() -> None:
        with ambient.refused():
            record_read("the file")
            raise FileNotFoundError("it lies elsewhere")

    with pytest.raises(AmbientInput, match="the file") as caught:
        reads()
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_failure_without_a_read_stays_as_it_is() -> None:
    with pytest.raises(FileNotFoundError), ambient.refused():
        raise FileNotFoundError("it lies elsewhere")


def test_quoting_a_source_reads_nothing(tmp_path: Path) -> None:
    audit.install_hook()
    source = tmp_path / "own.py"
    source.write_text("x = 1")
    with ambient.refused():
        assert linecache.getline(str(source), 1) == "x = 1\n"
    with pytest.raises(AmbientInput, match=r"own\.py"), ambient.refused():
        source.read_text()


def test_each_draw_from_a_global_generator_is_a_read() -> None:
    def draws() -> None:
        with ambient.refused():
            np.random.randn()

    np.random.seed(0)
    for _ in range(2):  # numbers of a normal distribution are made in pairs
        with pytest.raises(AmbientInput, match="the state of a global random generator"):
            draws()
