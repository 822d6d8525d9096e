"""Programs of several modules, made of the parts in `parts.py`.

A program is a tree of parts that lie in modules and reach each other in all the ways of Python. Its content
(`Program`) is separate from how it is written (`Style`); `Writer` puts the two together.
"""

import dataclasses
import itertools
import random
import re
from collections.abc import Iterator

from .parts import HOLDERS, PARTS

MODULES = ("program", "um_one", "um_pkg.um_two", "um_three")
LINKS = ("import", "from", "import as", "from as", "star", "getattr", "import in body", "from in body")
DOCSTRINGS = ("", '"""Does something."""', '"""Does something else.\n\nAt length.\n"""')
LOCALS = (("local_a", "local_b"), ("zz_top", "aa_low"), ("q", "other_local_name"))


@dataclasses.dataclass(frozen=True)
class Part:
    """A part in its place. Numbers are taken modulo the number of choices there are."""

    number: int
    kind: str
    choices: tuple[int, ...] = ()
    above: int | None = None  # the number of the part that calls this one, or None for the program itself
    module: int = 0
    link: int = 0
    holder: int = 0


@dataclasses.dataclass(frozen=True)
class Style:
    """How a program is written and run: nothing of this matters."""

    layout: int = 0  # comments, blank lines, order of definitions
    docstrings: int = 0
    local_names: int = 0
    unused: int = 0  # definitions and imports that nothing uses
    early_imports: int = 0  # whether the program imports all its modules first
    folder: int = 0
    as_main: int = 0
    run_first: int = 0
    worker: int = 0


@dataclasses.dataclass(frozen=True)
class Program:
    """Parts, in the order in which the program calls them."""

    parts: tuple[Part, ...]
    salt: str

    def children(self, above: int | None) -> list[Part]:
        return [part for part in self.parts if part.above == above]

    def part(self, number: int) -> Part:
        return next(part for part in self.parts if part.number == number)

    def module_of(self, part: Part) -> int:
        """Calls only go to the same module or a later one, so that no import is circular."""
        above = 0 if part.above is None else self.module_of(self.part(part.above))
        return max(above, part.module % len(MODULES))

    def replaced(self, part: Part) -> "Program":
        return dataclasses.replace(self, parts=tuple(part if p.number == part.number else p for p in self.parts))

    def without(self, part: Part) -> "Program":
        """The program without a part; what it called is called by what called it."""
        moved = (dataclasses.replace(p, above=part.above) if p.above == part.number else p for p in self.parts)
        return dataclasses.replace(self, parts=tuple(p for p in moved if p.number != part.number))


class Writer:
    """Writes one program in one style."""

    def __init__(self, program, style):
        self.program = program
        self.style = style
        # Some code makes matter what otherwise does not.
        self.docs_matter = any(part.kind == "docstring_read" for part in program.parts)
        # Modules that bodies import must be loaded, or each process traces the function.
        self.loaded_first = self._closure(self._reached_by("in body"))
        self.listed = self._closure(self._reached_by("import in body"))
        self.whole = self._closure(
            self._reached_by("getattr")
            | {program.module_of(part) for part in program.parts if part.kind == "evaluated"}
        )

    def files(self):
        """The text of each file."""
        files = {f"{MODULES[n].replace('.', '/')}.py": self._module(n) for n in range(1, len(MODULES))}
        return {"program.py": self._module(0), "um_pkg/__init__.py": "", **files}

    # ---- modules

    def _module(self, n):
        random_ = random.Random(f"{self.style.layout} {n}")
        parts = [part for part in self.program.parts if self.program.module_of(part) == n]
        imports, blocks = [], []
        for part in sorted(parts, key=lambda part: part.number):
            lines, block = self._part(part)
            imports += lines
            blocks.append(block)
        if n == 0:
            lines, last = self._face()
            imports += lines
        imports = sorted(set(imports))
        early = range(1, len(MODULES)) if self.style.early_imports else sorted(self.loaded_first)
        if n == 0:
            # Under other names: CPython compiles `name.method()` otherwise where the file imports `name`.
            imports += [f"import {MODULES[at]} as early_{at}" for at in early]
        if n not in self.listed | self.whole:
            imports += [line for line in UNUSED_IMPORTS[: self.style.unused] if line not in imports]
            blocks += UNUSED[: self.style.unused]
        if self.style.layout and n not in self.listed:
            random_.shuffle(imports)
            random_.shuffle(blocks)
        text = "\n".join(imports) + "\n\n" + "\n\n".join(blocks + ([last] if n == 0 else []))
        return self._styled(text, random_)

    def _face(self):
        """The function that is jitted."""
        imports, inside, calls = [], [], []
        for part in self.program.children(None):
            above, below, call = self._link(part, 0)
            imports += above
            inside += below  # before all calls: what is imported below is local in the whole body
            calls.append(f"local_a = local_a * 0.75 + {call}(local_a)")
        lines = "".join(f"    {line}\n" for line in (*inside, *calls))
        return imports, (
            f"def fn(x, salt={self.program.salt!r}):\n    DOC\n    local_a = x if salt else -x\n"
            f"{lines}    return local_a\n"
        )

    def _part(self, part):
        """Return the imports of a part at the top of its module, and its definitions."""
        imports, inside, call, defined = [], [], "", ""
        for child in self.program.children(part.number):  # one at most
            imports, inside, call = self._link(child, self.program.module_of(part))
            if child.holder % (len(HOLDERS) + 1):
                body = "".join(f"    {line}\n" for line in inside)
                text, expression = list(HOLDERS.values())[child.holder % len(HOLDERS)]
                defined = f"def held_$N(x):\n{body}    return {call}(x)\n\n{text}\n"
                inside, call = [], expression
        text = defined + chosen(PARTS[part.kind], part.choices)
        text = text.replace("$INNER", call)
        text = re.sub(r"^( *)\$IMPORTS\n", lambda m: "".join(f"{m[1]}{line}\n" for line in inside), text, flags=re.M)
        text = text.replace("$N", str(part.number))
        hoisted = [line for line in text.splitlines() if re.match(r"(import|from) ", line)]
        kept = "\n".join(line for line in text.splitlines() if not re.match(r"(import|from) ", line))
        return imports + hoisted, kept.strip("\n") + "\n"

    def _link(self, part, n):
        """Return the imports at the top and in the body of module `n` to call a part, and the expression to call."""
        here, there = MODULES[n], MODULES[self.program.module_of(part)]
        unit, link = f"unit_{part.number}", LINKS[part.link % len(LINKS)]
        alias = f"alias_{part.number}"
        package, _, leaf = there.rpartition(".")
        if here == there:
            return [], [], unit
        path = f"from {package} import {leaf}" if package else f"import {leaf}"
        top = {
            "import": ([f"import {there}"], f"{there}.{unit}"),
            "from": ([f"from {there} import {unit}"], unit),
            "import as": ([f"{path} as {alias}"], f"{alias}.{unit}"),
            "from as": ([f"from {there} import {unit} as {alias}"], alias),
            "star": ([f"from {there} import *"], unit),
            "getattr": ([f"import {there} as {alias}"], f"getattr({alias}, '{unit}')"),
        }
        if link in top:
            return (top[link][0], [], top[link][1])
        if link == "import in body":
            return [], [f"import {there}"], f"{there}.{unit}"
        return [], [f"from {there} import {unit}"], unit

    # ---- what is reached in ways that do not show what is read

    def _reached_by(self, link):
        program, found = self.program, set()
        for part in program.parts:
            above = 0 if part.above is None else program.module_of(program.part(part.above))
            if program.module_of(part) != above and link in LINKS[part.link % len(LINKS)]:
                found.add(program.module_of(part))
        return found

    def _closure(self, modules):
        program, found = self.program, set(modules)
        for _ in MODULES:
            for part in program.parts:
                if part.above is not None and program.module_of(program.part(part.above)) in found:
                    found.add(program.module_of(part))
        return found

    # ---- style

    def _styled(self, text, random_):
        lines = []
        for line in text.splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if self.style.layout and random_.random() < 0.3:
                lines += random_.choice([[""], [f"{indent}# a comment {random_.random()}"], ["", "", ""]])
            if line.strip() == "DOC":
                docstring = DOCSTRINGS[0 if self.docs_matter else self.style.docstrings % len(DOCSTRINGS)]
                lines += [indent + docstring.replace("\n", f"\n{indent}")] if docstring else []
            elif self.style.layout and line.strip() and random_.random() < 0.2:
                lines.append(f"{line}  # another {random_.random()}")
            else:
                lines.append(line)
        text = "\n".join(lines) + "\n"
        names = LOCALS[self.style.local_names % len(LOCALS)]
        return text.replace("local_a", names[0]).replace("local_b", names[1])


UNUSED_IMPORTS = ("import json", "from textwrap import dedent", "import collections.abc")
UNUSED = (
    "UNUSED = 'no one reads this'\n",
    "def unused(x):\n    return x * UNUSED_TOO\n\nUNUSED_TOO = 3.0\n",
    "class Unused:\n    UNUSED = [1, 2]\n",
)


def chosen(text: str, choices: tuple[int, ...]) -> str:
    """The text of a part with its choices made, from the first to the last."""
    named: dict[str, str] = {}
    numbers = itertools.chain(choices, itertools.repeat(0))
    while (end := text.find(">>")) >= 0:
        start = text.rfind("<<", 0, end)
        inside = text[start + 2 : end]
        name = re.match(r"([a-z]+)=(?! )", inside)
        if inside in named:
            pick = named[inside]
        else:
            options = inside[name.end() if name else 0 :].split("|")
            pick = options[next(numbers) % len(options)]
            if name:
                named[name[1]] = pick
        text = text[:start] + pick + text[end + 2 :]
    return text


def count_choices(text: str) -> int:
    """How many choices a part has."""
    named = set(re.findall(r"<<([a-z]+)=(?! )", text))
    return len(list(_slots(text, named)))


def _slots(text: str, named: set[str]) -> Iterator[str]:
    for inside in re.findall(r"<<([^<>]*)", text):
        if inside not in named:
            yield inside
