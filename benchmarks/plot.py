"""`python -m benchmarks.plot RESULTS.json PICTURE.svg`: how cost grows in one scenario of a saved run."""

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.table import figure

_AXES = {
    "array_size": "size of the array",
    "leaves": "leaves",
    "functions": "cached functions",
    "clients": "clients at once",
}


@click.command()
@click.argument("results", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("picture", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--scenario", type=click.Choice(tuple(_AXES)), default="array_size", show_default=True)
@click.option("--containing", default="", help="Only rows whose description contains this.")
def main(results: Path, picture: Path, scenario: str, containing: str) -> None:
    """Draw the medians and quartiles of a scenario in RESULTS, saved by `python -m benchmarks --save`, as PICTURE."""
    saved = json.loads(results.read_text())
    if scenario not in saved["results"]:
        raise click.UsageError(f"{results} has no results of {scenario}; it has {', '.join(saved['results'])}")
    rows = [row for row in saved["results"][scenario]["rows"] if row["costs"] and containing in row["what"]]
    if not rows:
        raise click.UsageError(f"no row of {scenario} contains {containing!r}")
    draw(rows, _AXES[scenario], _place(saved["machine"]), picture)


def draw(rows: list[dict[str, Any]], axis: str, place: str, picture: Path) -> None:
    """Saves a picture with a line for each contender, both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    # the same figures give the same file, with texts that are texts
    matplotlib.rcParams.update({"svg.hashsalt": "jitserver", "svg.fonttype": "none"})
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(8, 5))
    for name in dict.fromkeys(name for row in rows for name in row["costs"]):
        points = [(row["at"], row["costs"][name]) for row in rows if name in row["costs"]]
        at = [x for x, _ in points]
        (line,) = axes.plot(at, [cost["median"] for _, cost in points], marker="o", markersize=4, label=name)
        low, high = ([cost[which] for _, cost in points] for which in ("low", "high"))
        axes.fill_between(at, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xlabel=axis, ylabel="a call: median and quartiles")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({row["at"] for row in rows}))
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda at, _: _bytes(at) if axis == _AXES["array_size"] else f"{at:,.0f}")
    axes.yaxis.set_major_formatter(lambda seconds, _: figure(seconds, "s"))
    axes.tick_params(axis="x", labelrotation=45)
    axes.set_title(place, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend()
    picture.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(drawing)


def _bytes(size: float) -> str:
    return f"{size / (1 << 20):g} MiB" if size >= 1 << 20 else f"{size / (1 << 10):g} KiB"


def _place(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {machine['versions'][name]}" for name in ("jitserver", "jax"))
    return f"{machine['cores']} cores, {machine['processor']}, Python {machine['python']}, {versions}"


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.plot")
