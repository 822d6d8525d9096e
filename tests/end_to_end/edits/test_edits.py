"""Random programs under random edits: the daemon answers what plain `jax.jit` answers, and knows again what it knew.

After every edit the program runs twice, each time in a fresh process: through the daemon, and through `jax.jit`. The
two answers are equal bit for bit. Where the edit changes nothing that matters, or goes back to an earlier program, the
daemon traces nothing.

JITSERVER_TEST_EDITS=2000 sets about how many edits there are (60), JITSERVER_TEST_SEED=7 which ones (in the long mode
they differ from run to run). What fails is shrunk, and printed.
"""

import dataclasses
import difflib
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from jitclient.sessions.handshake import ask
from jitclient.settings import Settings
from jitclient.wire.messages import Status, Verb

from .parts import PARTS
from .program import Part, Program, Style, Writer, count_choices

HERE = Path(__file__).parent
BOUNDED = 60
EDITS = int(os.environ.get("JITSERVER_TEST_EDITS", BOUNDED))
SEED = os.environ.get("JITSERVER_TEST_SEED")
STEPS = 20  # of one program
MOST_PARTS = 7


KINDS = list(PARTS)
STYLES = [field.name for field in dataclasses.fields(Style)]


class Worker:
    """A process that forks one for each program."""

    def __init__(self, *flags, seed):
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(HERE / "worker.py"), *flags],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, **request):
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self):
        return json.loads(self._process.stdout.readline())

    def end(self):
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


class World:
    """The daemon, the workers, and the folders in which programs are written."""

    def __init__(self, address, base):
        self._address = address
        self._base = base
        self._clients = [Worker(seed=1), Worker("--with-jax", seed=2)]
        self._plain = Worker("--with-jax", seed=3)
        self._numbers = itertools.count()
        self.edits = self.hits = 0

    def salt(self):
        """What makes each program one that the daemon has never seen, also when a failure is tried again."""
        return f"{os.getpid()}.{next(self._numbers)}"

    def traces(self):
        return ask(Settings(address=self._address), Verb.STATUS, None, Status).traces

    def run(self, files, style):
        """The daemon's answer, the answer of `jax.jit`, and how often the daemon traced."""
        number = next(self._numbers)
        folder = self._base / f"{number}{'/deeper/down' * (style.folder % 2)}"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        before = self.traces()
        client = self._clients[style.worker % 2]
        where = {"folder": str(folder), "as_main": bool(style.as_main % 2)}
        client.send(jitted_by="jitclient", run_first=bool(style.run_first % 2), **where)
        self._plain.send(jitted_by="jax", run_first=False, **where)
        found, expected = client.answer(), self._plain.answer()
        shutil.rmtree(self._base / str(number))
        return found, expected, self.traces() - before

    def end(self):
        for worker in (*self._clients, self._plain):
            worker.end()


numbers = st.integers(0, 11)


class Edits(RuleBasedStateMachine):
    """One program and its edits."""

    def __init__(self, world):
        super().__init__()
        self.world = world
        self.seen = {}  # what the program said -> the files in which it first said so
        self.history = []
        self.program = Program((), world.salt())
        self.style = Style()
        self.next_number = 0

    # ---- edits that matter

    @initialize(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), data=st.data())
    def begin(self, kinds, data):
        for kind in kinds:
            self._add(kind, data.draw(numbers), data.draw(numbers), data.draw(numbers), data.draw(numbers))
        self.check()

    @rule(which=numbers, choice=numbers, pick=st.integers(1, 3))
    def choose(self, which, choice, pick):
        """A constant, an operator, a default, an attribute, an override, ..."""
        part = self._pick(which)
        n_choices = part and count_choices(PARTS[part.kind])
        if n_choices:
            choices = [*part.choices, *[0] * n_choices][:n_choices]
            choices[choice % n_choices] += pick
            self._edit(dataclasses.replace(part, choices=tuple(choices)))

    @rule(which=numbers, link=numbers, holder=numbers)
    def reach_otherwise(self, which, link, holder):
        part = self._pick(which)
        if part:
            self._edit(dataclasses.replace(part, link=link, holder=holder))

    @rule(which=numbers, module=st.integers(0, 3))
    def move(self, which, module):
        part = self._pick(which)
        if part:
            self._edit(dataclasses.replace(part, module=module))

    @rule(which=numbers, kind=st.sampled_from(KINDS))
    def rewrite(self, which, kind):
        part = self._pick(which)
        if part:
            self._edit(dataclasses.replace(part, kind=kind, choices=()))

    @rule(kind=st.sampled_from(KINDS), above=numbers, module=numbers, link=numbers, holder=numbers)
    def add(self, kind, above, module, link, holder):
        if len(self.program.parts) < MOST_PARTS:
            self._add(kind, above, module, link, holder)
            self.check()

    @rule(which=numbers)
    def remove(self, which):
        part = self._pick(which)
        if part and len(self.program.parts) > 1:
            self.program = self.program.without(part)
            self.check()

    @rule(which=numbers)
    def swap(self, which):
        parts = list(self.program.parts)
        if len(parts) > 1:
            at = which % (len(parts) - 1)
            parts[at], parts[at + 1] = parts[at + 1], parts[at]
            self.program = dataclasses.replace(self.program, parts=tuple(parts))
            self.check()

    # ---- edits that do not

    @rule(changes=st.dictionaries(st.sampled_from(STYLES), st.integers(0, 3), min_size=1, max_size=3))
    def restyle(self, changes):
        self.style = dataclasses.replace(self.style, **changes)
        self.check()

    @rule(changes=st.dictionaries(st.sampled_from(STYLES), st.integers(0, 3), min_size=3))
    def restyle_much(self, changes):
        self.style = dataclasses.replace(self.style, **changes)
        self.check()

    @rule(back=st.integers(1, 6))
    def undo(self, back):
        if back <= len(self.history):
            self.program = self.history[-back]
            self.check()

    # ---- what holds after each

    def check(self):
        files = self._files(self.style)
        if self.history and (self.program, self.style) == (self.history[-1], self._last_style):
            return
        said = json.dumps(self._said())
        known = self.seen.get(said)
        found, expected, traces = self.world.run(files, self.style)
        assert isinstance(expected, list), f"jax itself fails:\n{expected}\n{_shown(files)}"
        assert found == expected, f"the daemon's answer {found} is not jax's {expected}:\n{_shown(files)}"
        if known is not None:
            assert traces == 0, f"what changes nothing was traced again:\n{_difference(known, files)}\n{_shown(files)}"
            self.world.hits += 1
        self.seen.setdefault(said, files)
        self.history.append(self.program)
        self._last_style = self.style
        self.world.edits += 1

    def _said(self):
        """The program without its style.

        A module that only a body imports travels as its source; if it is loaded already, what its source does not
        show travels too, as anything may have changed it since: so there it matters whether it is loaded.
        """
        style = self.style
        is_by_source = bool(Writer(self.program, Style()).by_source)
        loads_first = Style(early_imports=style.early_imports, run_first=style.run_first % 2)
        return [self._files(Style()), dataclasses.astuple(loads_first) if is_by_source else None]

    def _files(self, style):
        return Writer(self.program, style).files()

    def _edit(self, part):
        self.program = self.program.replaced(part)
        self.check()

    def _pick(self, which):
        parts = self.program.parts
        return parts[which % len(parts)] if parts else None

    def _add(self, kind, above, module, link, holder):
        """Puts a part between one and what that calls, or where the program itself calls it."""
        number, parts = self.next_number, self.program.parts
        self.next_number += 1
        caller = None if not parts or above % (len(parts) + 1) == 0 else parts[above % (len(parts) + 1) - 1].number
        if caller is not None:
            parts = tuple(dataclasses.replace(p, above=number) if p.above == caller else p for p in parts)
        part = Part(number, kind, (), caller, module, link, holder)
        self.program = dataclasses.replace(self.program, parts=(*parts, part))


def _shown(files):
    return "\n".join(f"# ---- {name}\n{text}" for name, text in files.items() if text.strip())


def _difference(before, after):
    lines = []
    for name in before:
        lines += difflib.unified_diff(before[name].splitlines(), after[name].splitlines(), name, name, "", "", 2, "")
    return "\n".join(lines)


@pytest.fixture
def world(daemon, tmp_path):
    made = World(daemon, tmp_path)
    yield made
    made.end()


@pytest.mark.slow
@pytest.mark.timeout(600 + 3 * EDITS)
def test_never_stale_and_never_needlessly_cold(world, capsys):
    settings = hypothesis.settings(
        max_examples=2 * EDITS // STEPS,  # about every other step changes something
        stateful_step_count=STEPS,
        derandomize=EDITS == BOUNDED and SEED is None,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, *([] if EDITS == BOUNDED else [hypothesis.Phase.shrink])),
    )

    def machine():
        return Edits(world)

    if SEED is not None:
        machine = hypothesis.seed(int(SEED))(machine)
    run_state_machine_as_test(machine, settings=settings)
    with capsys.disabled():
        print(f" [{world.edits} edits survived, {world.hits} of them known to the daemon]", end="")
    assert world.edits > EDITS // 2
    assert world.hits > EDITS // 8
