"""A function as canonical bytes, and back: both halves of one format.

`capture` walks from a function to all the user code and values it depends on, and writes them as a
program whose bytes are the same wherever and whenever the function is the same. `load` runs that
program in a private namespace. Start reading at `dump.py` (client) and `load.py` (daemon).

What to change where:

- what counts as user code: `installed.py`, `usercode.py`; what is ambient: `ambient.py`; what is
  read while something runs: `world.py`
- what code reads by name: `bytecode.py`, `references.py`, `namespaces.py`; what it imports as it
  runs: `body_imports.py`, `module_sources.py`, `source_values.py`, `outline.py`
- what of a code object is its location: `code.py`
- how an object is described (client): `functions.py`, `classes.py`, `class_body.py`,
  `containers.py`, `wrappers.py`, `instances.py`, `arrays.py`, `jax_values.py`; in which order it
  is asked what it is: `others.py`; the walk itself: `walker.py`, over the nodes of `graph.py`
- what of an object its pickle forgets: `pickles.py`, with `unharmed.py` for what a copy may touch; what an object
  is then captured by: `attributes.py`, and `layouts.py` for what a class made in C keeps
- in which order a program makes things, and so how they are numbered: `schedule.py`
- what the pickles of a capture hold: `format.py`; read as data: `reading.py`
- how its steps are run (daemon): `building.py`, `make_functions.py`, `make_classes.py`,
  `make_values.py`; what captured code sees of the world: `sandbox.py`, `traps.py`; what its imports
  give: `private_imports.py`
- which loads share classes: `sharing.py`; what is asked of JAX's registry: `registry.py`; classes that come there
  late: `lazy_nodes.py`; what beartype makes: `beartyped.py`
- whether the order of a set can be observed: `set_order.py`, by code in `set_use.py`
- what only a trace knows: `opaque.py`
- what keeps a value of a trace: `holders.py`, `tracers.py`
- what the program changed of what is installed: `patches.py`, `registries.py`,
  `library_state.py`
- whether anything was rebound: `watch.py`, `identity.py`; how errors name the way: `failures.py`
"""

from .calls import own_attributes, rebuild_jit
from .dump import Capture, capture
from .format import FORMAT
from .frames import Frame
from .load import Loaded, load
from .sharing import class_count
from .tracers import holds_tracer

__all__ = [
    "FORMAT",
    "Capture",
    "Frame",
    "Loaded",
    "capture",
    "class_count",
    "holds_tracer",
    "load",
    "own_attributes",
    "rebuild_jit",
]
