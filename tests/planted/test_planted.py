"""Bugs in the capture, the loader, trees, results, manifest and keys cost warmth, and never an answer or an error."""

import ast
import collections
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import __main__ as tool
from . import corpus
from .mutants import TOP, Mutant, chosen, files, mutants_of, mutated, named, sample
from .operators import sites
from .reach import is_reached
from .trial import Bench, Verdict, bench

CODE = {
    "flip": [("a == b", "a != b"), ("a is None", "a is not None"), ("a in b", "a not in b"), ("a < b", "a >= b")],
    "bound": [("a < b", "a <= b"), ("a >= b", "a > b")],
    "remove-not": [("not a", "a")],
    "add-not": [("b if a else c", "b if not a else c"), ("[a for a in b if a]", "[a for a in b if not a]")],
    "and-or": [("a and b", "a or b"), ("a or b", "a and b")],
    "plus-minus": [("a + b", "a - b"), ("a - b", "a + b")],
    "constant": [("a(1)", "a(2)"), ("a(True)", "a(False)"), ("a('text')", "a('')"), ("a('')", "a('x')")],
    "swap-arguments": [("a(b, c, d)", "a(c, b, d)")],
    "drop-argument": [("a(b, c=1)", "a(b)")],
    "unsorted": [("sorted(a, key=b)", "list(a)")],
    "any-all": [("any(a)", "all(a)"), ("min(a, b)", "max(a, b)")],
    "slice": [("a[:b]", "a[1:b]"), ("a[b:]", "a[b:-1]")],
    "drop-element": [
        ("{a: b, c: d}", "{a: b}"),
        ("{a: b, c: d}", "{c: d}"),
        ("[a, b, c]", "[a, c]"),
        ("a(*(b, c))", "a(*(b,))"),
        ("[a, b]", "[b]"),
    ],
    "return-none": [("def f():\n    return a", "def f():\n    return None")],
    "delete": [("def f():\n    a = b\n    return a", "def f():\n    pass\n    return a")],
    "break-continue": [("while a:\n    break", "while a:\n    continue")],
    "raise-KeyError": [("def f():\n    a", "def f():\n    raise KeyError('planted')\n    a")],
    "raise-TypeError": [("def f():\n    a", "def f():\n    raise TypeError('planted')\n    a")],
    "raise-ValueError": [("def f():\n    'a'\n    b", "def f():\n    'a'\n    raise ValueError('planted')\n    b")],
    "raise-RecursionError": [("def f():\n    a", "def f():\n    raise RecursionError('planted')\n    a")],
}
"""For each operator, pieces of code and one that it makes of each."""


def made_of(code: str) -> dict[str, list[str]]:
    """Return the code that each operator makes of some code."""
    found: dict[str, list[str]] = {}
    for number, (name, _) in enumerate((site.operator, site) for site in sites(ast.parse(code))):
        tree = ast.parse(code)
        list(sites(tree))[number].put()
        found.setdefault(name, []).append(ast.unparse(ast.fix_missing_locations(tree)).replace('"""', "'"))
    return found


@pytest.mark.parametrize("operator", CODE)
def test_an_operator_changes_code(operator: str) -> None:
    for before, after in CODE[operator]:
        assert after in made_of(before)[operator]


@pytest.mark.parametrize(
    "code",
    ['"""Documented."""', "import a", "from a import b", "f'{a} text'", "if TYPE_CHECKING:\n    a = 1", "a: 'b'"],
)
def test_what_makes_no_difference_is_left_alone(code: str) -> None:
    assert made_of(code) == {}


def test_only_the_raising_of_an_error_changes_and_not_its_text() -> None:
    assert made_of("def f():\n    raise E('text')").keys() == {"delete", *(name for name in CODE if "raise" in name)}


def test_each_room_has_mutants_with_names_of_their_own() -> None:
    found = [mutant for file in files() for mutant in mutants_of(file)]
    names = {str(mutant) for mutant in found}
    assert len(names) == len(found) > 10_000
    rooms = collections.Counter(name.partition(":")[0].rpartition("/")[0] for name in names)
    assert rooms.keys() >= {"client/jitclient/capture", "client/jitclient/jaxside", "jitserver/programs"}
    assert not any("planted" in (TOP / file).read_text() for file in files())  # what the operators plant is theirs


def test_a_mutant_differs_in_one_place_and_is_found_again_by_its_name() -> None:
    mutant = next(found for found in mutants_of("jitserver/programs/keys.py") if found.operator == "return-none")
    text = mutated(mutant)
    before = ast.unparse(ast.parse((TOP / mutant.file).read_text())).splitlines()
    changed = [(a, b) for a, b in zip(before, text.splitlines(), strict=True) if a != b]
    assert [after.strip() for _, after in changed] == ["return None"]
    assert named(str(mutant)) == mutant
    assert mutant.module == "jitserver.programs.keys"
    with pytest.raises(ValueError, match="no such mutant"):
        named("jitserver/programs/keys.py:1:no-such")


def test_the_choice_depends_on_its_seed_alone_and_covers_the_files_first() -> None:
    first, again, other = chosen(90, 1), chosen(90, 1), chosen(90, 2)
    assert first == again != other
    assert len(set(first)) == 90
    with_mutants = [file for file in files() if mutants_of(file)]
    assert {mutant.file for mutant in first} == set(with_mutants)
    assert {found.operator for found in chosen(9, 1, keep=lambda mutant: mutant.operator == "flip")} == {"flip"}
    assert sample(first, 8, 1) == sample(first, 12, 1)[:8]
    assert set(sample(first, 12, 1)) < set(first)


def test_the_corpus_is_large_enough_and_its_exceptions_exist() -> None:
    assert len(corpus.judged()) >= 60
    assert corpus.NOT_YET.keys() < set(corpus.names())
    assert corpus.names()[-1].startswith("libraries.")


def test_a_mutant_is_reached_where_the_innermost_function_around_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n@d\ndef f():\n    def g():\n        return 1\n    return g\n")
    lines = {line for line in range(1, 7) if is_reached(Mutant("a.py", line, "flip"), {"a.py:2"}, tmp_path)}
    assert lines == {1, 2, 3, 6}


PLAIN = {"name": "a.case", "returns": 1, "warm": False}


def judged(*found: dict[str, object], end: str = "") -> list[tuple[str, str]]:
    made = object.__new__(Bench)
    made._tried_programs, made.plain = ["a.case", "b.case"], {"a.case": PLAIN, "b.case": {**PLAIN, "name": "b.case"}}
    problems = made._problems({str(line["name"]): dict(line) for line in found}, end)
    return [(problem["kind"], problem["program"]) for problem in problems]


def test_the_verdict_is_about_values_and_errors_alone() -> None:
    right, other = {**PLAIN, "warm": True}, {**PLAIN, "name": "b.case"}
    raised = {"name": "b.case", "raises": "KeyError", "text": "planted", "warm": False}
    assert judged(right, other) == []
    assert judged(right, {**other, "returns": 2}) == [("wrong", "b.case")]
    assert judged(right, raised) == [("error", "b.case")]
    assert judged(right, end="hang") == [("hang", "b.case")]
    assert judged(end="ended with status -11") == [("error", "a.case")]


def test_a_verdict_is_told_with_its_first_problem() -> None:
    problem = {"process": 2, "kind": "wrong", "program": "a.case", "expected": {"returns": 1}, "got": {"returns": 2}}
    text = tool.told(Verdict("wrong", [1, 2], [problem], 3.0))
    assert text.startswith("wrong")
    assert "a.case in process 2" in text
    assert '{"returns": 2}' in text


def test_what_a_report_has_is_not_done_again(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    report.write_text(json.dumps({"id": "a.py:1:flip", "sides": "both", "verdict": "right", "reached": True}) + "\n")
    assert tool.reported(report, "both") == {"a.py:1:flip": "right"}
    assert tool.reported(report, "client") == tool.reported(None, "both") == {}


# ---- in processes


BUGS, EIGHTHS = 24, 8
"""Planted bugs, each met by an eighth of the programs, and each eighth by three of them. `python -m tests.planted` has
240 bugs, and all programs.
"""


@pytest.fixture(scope="module")
def made() -> Iterator[Bench]:
    with bench(corpus.judged()) as made:
        yield made


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_a_bug_all_programs_are_right_and_most_are_warm(made: Bench) -> None:
    found = made.try_out()
    assert found.verdict == "right", found.problems
    assert found.warm[1] > 0.9 * len(made.programs)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(BUGS))
def test_a_bug_costs_warmth_only(number: int, made: Bench) -> None:
    mutant = sample(chosen(240, 1), BUGS, 1)[number]
    found = made.try_out(mutant, of=slice(number % EIGHTHS, None, EIGHTHS))
    assert found.verdict in ("right", "dead", "unimportable"), f"{mutant} {found.problems[0]}"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", corpus.NOT_YET)
def test_a_program_that_is_right_is_not_called_wrong(program: str) -> None:
    with bench([program]) as made:
        assert made.try_out().verdict != "right", "it is right now: take it out of NOT_YET"
