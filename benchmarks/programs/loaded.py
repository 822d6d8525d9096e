"""The training of `transformer.py` with a step that JAX itself loads from a file, which the first run writes.

Usage: python loaded.py jax LAYERS WIDTH STEPS FILE. The last line is that of `transformer.py`.
"""

import pickle
import sys
import time
from pathlib import Path

from jax.experimental.serialize_executable import deserialize_and_load, serialize

from benchmarks.programs import transformer

program = Path(sys.argv[5])
params, tokens = transformer.beginning()
if not program.exists():
    program.write_bytes(pickle.dumps(serialize(transformer.step.lower(params, tokens).compile())))
start = time.time()
step = deserialize_and_load(*pickle.loads(program.read_bytes()))
transformer.train(step, params, tokens, load=time.time() - start)
