"""An object that cannot travel fails however it is used, and the use is noted."""

import pytest

from jitclient.capture.ambient.inputs import recorded_reads
from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import AmbientInput

USES = {
    "equal": "sys.argv == ['x']",
    "not_equal": "sys.argv != ['x']",
    "reflected": "['x'] == sys.argv",
    "hash": "{sys.argv: 1}",
    "modulo": "sys.argv % 2",
    "reflected_modulo": "'%s' % sys.argv",
    "str": "str(sys.argv)",
    "format": "f'{sys.argv}'",
    "power": "2 ** sys.argv",
    "union": "sys.argv | {}",
    "isinstance": "isinstance(1, sys.argv)",
    "isinstance_of_it": "isinstance(sys.argv, list)",
    "isinstance_of_an_abstract_class": "isinstance(sys.argv, collections.abc.Sequence)",
    "reversed": "reversed(sys.argv)",
    "bytes": "bytes(sys.argv)",
    "copy": "copy.deepcopy(sys.argv)",
    "delete": "sys.argv.__delitem__(0)",
    "complex": "complex(sys.argv)",
}


@pytest.mark.parametrize("use", USES)
def test_every_use_fails_and_is_noted(write, use):
    module = write(um_use=f"def fn(x):\n    import collections.abc, copy, sys\n    return {USES[use]}\n")
    made = capture(module.fn)
    loaded = load(made.payload, made.locations)
    with recorded_reads() as noted, pytest.raises(AmbientInput):
        loaded.fn(1)
    assert noted == ["sys.argv is read from outside the function's own objects"]


def test_looking_at_a_name_is_no_use(write):
    module = write(um_look="def fn(x):\n    import sys\n    a = sys.argv\n    repr(a)\n    return x\n")
    made = capture(module.fn)
    loaded = load(made.payload, made.locations)
    with recorded_reads() as noted:
        assert loaded.fn(1) == 1
    assert noted == []


def test_a_container_of_traps_loads(write):
    module = write(
        um_held="""
        import threading
        LOCKS = {threading.Lock(): 1}
        SET = {threading.Lock()}
        K = 3
        def fn(x):
            return globals()["K"] + x
        """
    )
    assert load(capture(module.fn).payload).fn(1) == 4
