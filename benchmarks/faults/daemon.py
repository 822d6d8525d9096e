"""A daemon whose start is made to fail, once it has imported what it needs."""

import os
import sys
from pathlib import Path

from benchmarks.faults.shim import Control
from jitserver.cli import main
from jitserver.daemon import daemon  # noqa: F401

call, _, number = os.environ["FAULTS_START"].partition(" ")
Control(Path(os.environ["FAULTS_CONTROL"])).arm(call, int(number))
sys.exit(main())
