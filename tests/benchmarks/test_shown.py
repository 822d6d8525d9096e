"""Results for people: the table says targets, ratios and verdicts; the plot is drawn from what was saved."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import table
from benchmarks.__main__ import main
from benchmarks.measure import Samples
from benchmarks.result import Row, Target
from benchmarks.scenarios import small_call


def rows() -> list[dict[str, Any]]:
    samples = Samples(
        {"jitserver": [1e-3, 1.1e-3, 1.2e-3], "bare socket": [2e-3, 2.2e-3, 2.4e-3]}, missing={"Ray": "x"}
    )
    more = Samples(
        {"jitserver": [0.5, 0.5, 0.5], "bare socket": [0.25, 0.25, 0.25]}, failed={"Dask": "a\n  b\nE: c\n  d"}
    )
    return [
        Row("call", samples, (Target(0.7, times="bare socket"), Target(1e-4)), at=1.0).result(),
        Row("more", more, (Target(0.1, beyond="bare socket"),), at=10.0).result(),
        Row("later", targets=(Target(0.3, not_yet="not built"),)).result(),
    ]


def test_the_table_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    table.show("small_call", rows())
    printed = " ".join(capsys.readouterr().out.split())
    for text in (
        "1.1 ms",
        "0.5x [0.5, 0.5]",
        "<= 0.7x bare socket 0.5x [0.5x, 0.5x] met",
        "<= 100 us 1.1 ms [1.05 ms, 1.15 ms] missed",
        "<= bare socket + 100 ms +250 ms [250 ms, 250 ms] missed",
        "not yet",
        "later: not built",
        "missing: Ray: x",
        "failed: Dask: E: c",
    ):
        assert text in printed, printed


@pytest.mark.parametrize(("failed", "status"), [({}, 0), ({"tutorial": "died"}, 0), ({"jitserver": "died"}, 1)])
def test_the_exit_status_says_whether_ours_failed(
    failed: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_call, "rows", lambda effort: [Row("call", Samples({}, failed))])
    before = signal.getsignal(signal.SIGTERM)
    try:
        done = CliRunner().invoke(main, ["small_call", "--json"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.exit_code == status
    assert json.loads(done.stdout)["results"]["small_call"]["rows"][0]["failed"] == failed


@pytest.mark.slow
def test_the_plot_is_drawn_from_a_saved_run(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import plot

    machine = {"cores": 2, "processor": "P", "python": "3", "versions": {"jitserver": "1", "jax": "2"}}
    saved, picture = tmp_path / "saved.json", tmp_path / "docs" / "picture.svg"
    saved.write_text(json.dumps({"machine": machine, "results": {"array_size": {"rows": rows()}}}))
    done = CliRunner().invoke(plot.main, [str(saved), str(picture)])
    assert done.exit_code == 0, done.output
    drawn = picture.read_text()
    assert "<svg" in drawn
    for text in ("jitserver", "bare socket", "size of the array", "P, Python 3"):
        assert text in drawn
    done = CliRunner().invoke(plot.main, [str(saved), str(picture), "--scenario", "leaves"])
    assert done.exit_code == 2
    assert "no results of leaves" in done.output
