"""The data of installed packages that a trace reads outside of the capture: settings, registries, defaults.

A capture refers to packages only by name. So a program is stored with a manifest: the names of the data that its trace
read, and their digests. A process whose packages are in a different state does not get that program.

- observing a trace: `hooks.py` reports the code that runs, `reads.py` determines the names that code reads, and
  `observation.py` combines both
- values: `places.py` resolves names, `trees.py` and `definitions.py` describe values, and `changes.py` determines
  changes that a trace may make without an effect on comparisons
- look-ups: `state.py`

None of this runs code of the user or of packages, except for the import of modules that the trace imported, too.
"""

from jitclient.capture.manifest.hooks import A_DEBUGGER
from jitclient.capture.manifest.observation import Observation, Reads, observed
from jitclient.capture.manifest.places import path_of
from jitclient.capture.manifest.state import covers, is_exact, packages_of, state_of

__all__ = ["A_DEBUGGER", "Observation", "Reads", "covers", "is_exact", "observed", "packages_of", "path_of", "state_of"]
