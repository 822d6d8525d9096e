"""Report of `--report`: the programs used, the time that hits saved, and the work done in this process instead."""

from collections.abc import Iterator

import msgspec

from jitclient.core import events
from jitclient.core.notices import print_line, print_notice
from jitclient.jaxside.compilation_cache import made_in_each_run
from jitclient.jaxside.compiler import Remade
from jitclient.wire import labels

_MAX_ROWS = 20
_FOUND_IN = {"memory": "found in memory", "disk": "found on the disk", "share": "found in the lab's cache"}


class ProgramRow(msgspec.Struct):
    """Program that was got from a level, and the seconds that this saved or, if it was made, took."""

    program: str
    level: str
    times: int
    seconds: float
    why: str


class LocalRow(msgspec.Struct):
    """Function that was "traced" or "run" in this process, and the reason."""

    function: str
    what: str
    times: int
    why: str


class MovedRow(msgspec.Struct):
    """Program that this process loaded and ran itself, after so many calls that the daemon ran."""

    program: str
    calls: int
    times: int


class JaxRow(msgspec.Struct):
    """Compilations that jax found, and those that it made in this process."""

    found: int
    saved_seconds: float
    compiled: int
    compiled_seconds: float


class PackageRow(msgspec.Struct):
    """Installed package with jitted functions that jax compiled in this process."""

    package: str
    functions: int
    seconds: float


class ImportsRow(msgspec.Struct):
    """Modules that the helper had imported before the program began, and the seconds that this took there.

    There are none, for the reason `why`, if the program runs in a fresh process.
    """

    modules: int = 0
    seconds: float = 0.0
    why: str = ""


class RunReport(msgspec.Struct):
    """All that was counted in this process."""

    saved_seconds: float
    programs: list[ProgramRow]
    local: list[LocalRow]
    # Seconds of those saved that JAX's own cache would save as well.
    saved_by_jax_seconds: float = 0.0
    jax: JaxRow | None = None
    packages: list[PackageRow] = []
    imports: ImportsRow | None = None
    moved_in: list[MovedRow] = []


def print_report(form: str) -> None:
    """Print the report on stderr, as lines of text, or with the form "json" as one line of JSON."""
    found = report_now()
    if form == "json":
        print_line(msgspec.json.encode(found).decode())
    else:
        for line in lines(found):
            print_notice(line)


def report_now() -> RunReport:
    """Return the report of what was counted until now."""
    log = events.log
    _, packages, preloaded, why_fresh = log.started
    imports = ImportsRow(*preloaded) if preloaded is not None else ImportsRow(why=why_fresh) if why_fresh else None
    jax = JaxRow(*log.total("found by jax"), *log.total("compiled by jax"))
    got = sorted((log.counted("found") | log.counted("made")).items())
    functions = log.counted("package")
    stayed = sorted({package for package, _ in functions} - {*packages})
    took = {name: [seconds for key, (_, seconds) in functions.items() if key[0] == name] for name in stayed}
    return RunReport(
        log.total("found")[1] + jax.saved_seconds,
        [ProgramRow(program, level, *count, why) for (program, level, why), count in got],
        [LocalRow(name, what, times, why) for (name, what, why), (times, _) in log.counted("local").items()]
        + [LocalRow(*_remade(*each)) for each in made_in_each_run()],
        log.total("saved by jax")[1] + jax.saved_seconds,
        jax if jax.found + jax.compiled else None,
        [PackageRow(name, len(seconds), sum(seconds)) for name, seconds in took.items()],
        imports,
        [MovedRow(name, int(calls), times) for (name, calls), (times, _) in log.counted("moved in").items()],
    )


def lines(of: RunReport) -> Iterator[str]:
    """Yield the lines of a report."""
    width = max((len(row.program) for row in of.programs), default=0)
    counts = dict.fromkeys(("memory", "disk", "share", "made", "remade"), 0)
    for row in of.programs:
        counts[row.level] += row.times
    again = f", {counts['remade']} made again" if counts["remade"] else ""
    shared = f", {counts['share']} in the lab's cache" if counts["share"] else ""
    yield from _rows(
        "programs", [f"{row.program:{width}}  {_how(row)}{_times(row.times)}" for row in of.programs] or ["none"]
    )
    yield from _rows(
        "hits", [f"{counts['memory']} in memory, {counts['disk']} on the disk{shared}; {counts['made']} made{again}"]
    )
    yield from _rows(
        "here", [f"{row.program} after {_number(row.calls, 'call')}{_times(row.times)}" for row in of.moved_in]
    )
    if of.jax is not None:
        found = f", {_saved(of.jax.saved_seconds)}" if of.jax.found else ""
        made = f" in {labels.seconds(of.jax.compiled_seconds)}" if of.jax.compiled else ""
        compilations = f"{_number(of.jax.found, 'compilation')} found{found}"
        yield from _rows("jax", [f"{compilations}; {of.jax.compiled:,} made in this process{made}"])
    packages = [
        f"{row.package}: {_number(row.functions, 'function')} compiled in this process in"
        f" {labels.seconds(row.seconds)}; --package {row.package} would serve {'it' if row.functions == 1 else 'them'}"
        for row in of.packages
    ]
    yield from _rows("packages", packages)
    if of.imports is not None:
        modules, took = _number(of.imports.modules, "module"), labels.seconds(of.imports.seconds)
        in_advance = f"{modules} imported before the program began, in {took}"
        in_order = f"none before the program began: {of.imports.why}"
        yield from _rows("imports", [in_order if of.imports.why else in_advance])
    saved, by_jax = max(0.0, of.saved_seconds), of.saved_by_jax_seconds
    yield from _rows("saved", [f"{labels.seconds(saved)} of tracing and compiling{labels.saved_by_jax(saved, by_jax)}"])
    yield from _rows(
        "local", [f"{row.function} was {row.what}{_times(row.times)}: {row.why}" for row in of.local] or ["nothing"]
    )


def _remade(remade: Remade, times: int, seconds: float) -> tuple[str, str, int, str]:
    where = f" at {remade.where}" if remade.where else ""
    return f"{remade.function}{where}", f"compiled, as in each run, in {labels.seconds(seconds)}", times, remade.reason


def _how(row: ProgramRow) -> str:
    if row.level in _FOUND_IN:
        return f"{_FOUND_IN[row.level]}, {_saved(row.seconds)}"
    took = labels.seconds(row.seconds)
    return f"made again in {took}: {row.why}" if row.why else f"made in {took}"


def _saved(seconds: float) -> str:
    """Return the seconds saved as text. Finding can take longer than making took."""
    return f"{labels.seconds(seconds)} saved" if seconds > 0 else "no time saved"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _times(number: int) -> str:
    return f", {number} times" if number > 1 else ""


def _rows(title: str, entries: list[str]) -> Iterator[str]:
    more = [f"and {len(entries) - _MAX_ROWS} more"] if len(entries) > _MAX_ROWS else []
    for entry in entries[:_MAX_ROWS] + more:
        yield f"{title:8}  {entry}"
        title = ""
