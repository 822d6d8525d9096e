"""Names that a source shows without being run."""

import ast

from jitclient.capture.user_code.module_sources import Signature, outline_of

SOURCE = """
import a.b, c as d
from e import *
K = 1
TWICE = 1
TWICE = 2
A = B = [1]
NOTE: str = "n"
LATER: int
COMPUTED = f(1)
GONE = 1
del GONE
for LOOP in (1, 2):
    pass
if K:
    MAYBE = 1
def plain(x, y=(1, 2), *, z={}): ...
@property
def told(self): ...
@cached
def decorated(x): ...
def computed(x=f()): ...
class Model:
    k = [1]
    def run(self): ...
"""


def test_outline():
    outline = outline_of(ast.parse(SOURCE).body)
    names = "a d K A B NOTE COMPUTED plain told decorated computed Model"
    assert outline.names == set(names.split())
    assert outline.literals == {"K": 1, "NOTE": "n"}
    assert outline.functions == {
        "plain": Signature("", ((1, 2),), {"z": {}}),
        "told": Signature("property", None, None),
    }
    assert outline.classes["Model"].literals == {"k": [1]}
    assert outline.classes["Model"].functions == {"run": Signature("", None, None)}
