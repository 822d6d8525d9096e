"""The edits of a program, as a state machine of hypothesis, and what must hold after each."""

import dataclasses
import difflib
import json

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from .parts import PARTS
from .program import Part, Program, Style, Writer, count_choices

MOST_PARTS = 7

KINDS = list(PARTS)
STYLES = [field.name for field in dataclasses.fields(Style)]

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
        """The program without its style."""
        return self._files(Style())

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
