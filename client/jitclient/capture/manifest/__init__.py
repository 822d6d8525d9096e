"""What a trace reads of installed packages beside the function's capture: settings, registries, defaults.

A capture has packages by name only. A program is kept with the names of the data that its trace read, and their
digests; a process whose packages are in another state does not get that program.

- observing: `hooks.py` hears of the code that runs, `reads.py` says which names it reads, `observation.py` has both
- values: `places.py` follows names, `trees.py` and `definitions.py` describe what is there, `changes.py` what of it a
  trace may change without its counting
- look-ups: `state.py`

No code of the user's or of packages runs for any of it, but for the import of a module that the trace has imported.
"""

from jitclient.capture.manifest.observation import Observation, Reads, observed
from jitclient.capture.manifest.state import has, is_exact, packages_of, state_of, together

__all__ = ["Observation", "Reads", "has", "is_exact", "observed", "packages_of", "state_of", "together"]
