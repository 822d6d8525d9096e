"""The commands `jitserver cache show|why`: the details of one program."""

import datetime
from typing import Any

import click
import msgspec

from jitclient.errors import DaemonUnavailable
from jitclient.wire.explaining import Explained, Why
from jitclient.wire.introspection import EntryInfo, Show
from jitclient.wire.messages import Inspected, Verb
from jitserver.cli.common import ago, ask, json_option, print_table, report, seconds, size
from jitserver.cli.entries import complete_key, matching, newest, short

_FROM_ANALYSIS = ("flops", "bytes accessed", "transcendentals")


@click.command()
@click.argument("key", shell_complete=complete_key)
@click.option("--hlo", is_flag=True, help="Show the compiled program, after XLA's optimizations.")
@click.option("--stablehlo", is_flag=True, help="Show the input of XLA.")
@click.option("--jaxpr", is_flag=True, help="Show what JAX traced.")
@json_option
def show(key: str, **texts: bool) -> None:
    """Show the programs whose key starts with KEY, or whose function has that name.

    --hlo, --stablehlo and --jaxpr show only that text, of the most recently made program. --stablehlo and --jaxpr trace
    the function again, on the daemon, from the cached capture. Without a daemon, the compiler's analysis is missing.
    """
    wanted = [name for name, is_wanted in texts.items() if is_wanted]
    if wanted:
        entry = newest(key)
        shown = {name: _text(entry, name) for name in wanted}
        report([{**msgspec.structs.asdict(entry), **shown}], lambda: click.echo_via_pager("\n".join(shown.values())))
        return
    found = matching(key)
    # Analyze a single program only, because the analysis loads the program.
    both = [(entry, _analysis(entry) if len(found) == 1 else {}) for entry in found]
    report([{**msgspec.structs.asdict(entry), **analysis} for entry, analysis in both], lambda: _print(both))


@click.command()
@click.argument("key", shell_complete=complete_key)
@click.argument("key2", required=False, shell_complete=complete_key)
@json_option
def why(key: str, key2: str | None) -> None:
    """Explain why a program was not found in the cache: how it differs from the most similar earlier program.

    With KEY2, explain how the two differ. KEY and KEY2 are beginnings of keys, or names of functions; if several
    programs match, the most recently made one is used.
    """
    wanted, other = newest(key), newest(key2) if key2 is not None else None
    question = Why(wanted.key, other.key if other is not None else "")
    explained: Explained | None
    try:
        explained = ask(Verb.WHY, question, Explained | None)
    except DaemonUnavailable:
        from jitserver.store import offline
        from jitserver.store.explain import explain as compared

        explained = compared(offline, question)
    if explained is None or explained.found is None:
        raise click.ClickException("one of the programs was removed meanwhile. See `jitserver cache ls`.")
    lines = _answer(explained, explained.found)
    report(explained, lambda: click.echo("\n".join(lines)))


def _text(entry: EntryInfo, what: str) -> str:
    found: Inspected | None = ask(Verb.SHOW, Show(entry.key, what), Inspected | None)
    if found is None:
        raise click.ClickException(f"{entry.label} was removed meanwhile, or is not on the disk")
    if not found.text:
        raise click.ClickException(f"the daemon has no {what} of {entry.label}, which was traced in its client")
    return found.text


def _analysis(entry: EntryInfo) -> dict[str, Any]:
    """Return the compiler's analysis of a program; empty if no daemon is running or the program was removed."""
    try:
        memory: Inspected | None = ask(Verb.SHOW, Show(entry.key, "memory"), Inspected | None)
        costs: Inspected | None = ask(Verb.SHOW, Show(entry.key, "costs"), Inspected | None)
    except DaemonUnavailable:
        return {}
    return {"memory": memory.memory, "costs": costs.costs} if memory is not None and costs is not None else {}


def _print(found: list[tuple[EntryInfo, dict[str, Any]]]) -> None:
    for entry, analysis in found:
        print_table(["key", entry.key], _details(entry) + _of_compiler(analysis))


def _answer(explained: Explained, entry: EntryInfo) -> list[str]:
    lines = [f"{_named(entry)}, made in {seconds(sum(entry.seconds.values()))}"]
    if explained.nearest is None:
        return [*lines, "resembles no other program in the cache"]
    lines.append(f"differs from {_named(explained.nearest)} in")
    return lines + ([f"  {difference}" for difference in explained.differences] or ["  nothing"])


def _named(entry: EntryInfo) -> str:
    return f"{entry.label} {short(entry)}"


def _details(entry: EntryInfo) -> list[list[str]]:
    created = datetime.datetime.fromtimestamp(entry.created).isoformat(" ", "seconds")
    loading = f", loaded in {seconds(entry.loading)}" if entry.loading else ""
    kept = ["in memory"] * entry.in_memory + [f"on the disk ({size(entry.disk_bytes)}{loading})"] * bool(
        entry.disk_bytes
    )
    if entry.no_executable:
        kept.append(f"without its executable ({entry.no_executable}), so that a new daemon compiles it again")
    return [
        ["program", entry.signature],
        ["function", ", ".join(filter(None, [entry.name, entry.where]))],
        ["function key", entry.function_key],
        ["options", entry.options or "none"],
        ["context", ", ".join(f"{name} {value}" for name, value in entry.context.items() if value)],
        ["made", f"{created}: " + ", ".join(f"{name} {seconds(value)}" for name, value in entry.seconds.items())],
        ["used", f"{entry.hits} hits, {seconds(entry.saved)} saved, last {ago(entry.last_used)}"],
        ["kept", ", ".join(kept + ["pinned"] * entry.pinned) or "by the sessions that use it"],
        ["machine code", size(entry.code_bytes)],
    ]


def _of_compiler(analysis: dict[str, Any]) -> list[list[str]]:
    memory, costs = analysis.get("memory", {}), analysis.get("costs", {})
    sizes = {name.removesuffix("_in_bytes").removesuffix("_size"): value for name, value in memory.items() if value}
    words = [f"{name} {size(value)}" for name, value in sizes.items()]
    estimate = [f"{costs[name]:,.0f} {name}" for name in _FROM_ANALYSIS if name in costs]
    rows = [["memory", ", ".join(words)], ["costs", ", ".join(estimate)]]
    return [row for row in rows if row[1]]
