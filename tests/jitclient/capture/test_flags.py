"""absl's flags: code that reads them by name finds what the command line said."""

import pytest

from jitclient.capture.dump import capture
from jitclient.capture.load import load
from jitclient.errors import AmbientInput

flags = pytest.importorskip("absl.flags")

SOURCE = """
from absl import flags
from absl.flags import DEFINE_integer
FLAGS = flags.FLAGS
if "um_rate" not in FLAGS:
    flags.DEFINE_float("um_rate", 0.5, "")
    flags.DEFINE_integer("um_seed", 0, "")
    FLAGS.mark_as_parsed()
if "um_held" not in FLAGS:
    HELD = DEFINE_integer("um_held", 3, "")
def by_name(x): return x * FLAGS.um_rate
def by_module(x): return x * flags.FLAGS.um_rate
def by_holder(x): return x * HELD.value
def by_item(x): return x * FLAGS["um_rate"].value
def by_look(x): return hasattr(FLAGS, "um_other")
def whole(x): return FLAGS.flag_values_dict()
"""


@pytest.fixture
def module(write):
    yield write(um_flags=SOURCE)
    for name in ("um_rate", "um_seed", "um_held"):
        delattr(flags.FLAGS, name)


@pytest.mark.parametrize(
    ("name", "flag", "is_now"),
    [("by_name", "um_rate", 1.0), ("by_module", "um_rate", 1.0), ("by_holder", "um_held", 6)],
)
def test_a_flag_read_by_name_travels(module, name, flag, is_now):
    function = getattr(module, name)
    before = capture(function)
    was = function(2)
    assert before.unchanged()
    flags.FLAGS.um_seed = 7
    assert capture(function).key == before.key
    setattr(flags.FLAGS, flag, is_now)
    assert not before.unchanged()
    after = capture(function)
    assert after.key != before.key
    delattr(flags.FLAGS, flag)  # the daemon has none of them
    flags.DEFINE_string(flag, "", "")
    assert load(before.payload).fn(2) == was
    assert load(after.payload).fn(2) == 2 * is_now


@pytest.mark.parametrize("name", ["by_item", "by_look", "whole"])
def test_any_other_use_is_found_out(module, name):
    loaded = load(capture(getattr(module, name)).payload)
    with pytest.raises(AmbientInput, match="absl's flags"):
        loaded.fn(1)
