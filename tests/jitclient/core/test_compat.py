"""Differences between versions of Python that have one place."""

import sys
import types

import pytest

from jitclient.core import compat


@pytest.mark.skipif(compat._MODULES_VERSION is None, reason="NOT TESTED: dictionaries have no versions here")
def test_stamp_of_modules_sees_one_come_as_another_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "first_of_two", types.ModuleType("first_of_two"))
    before, count = compat.modules_stamp(), len(sys.modules)
    assert compat.modules_stamp() == before
    monkeypatch.delitem(sys.modules, "first_of_two")
    monkeypatch.setitem(sys.modules, "second_of_two", types.ModuleType("second_of_two"))
    assert len(sys.modules) == count
    assert compat.modules_stamp() != before
