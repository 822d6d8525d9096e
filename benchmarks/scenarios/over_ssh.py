"""An array put and fetched again over ssh, as from another machine, beside what ssh itself takes."""

from collections.abc import Iterator

from benchmarks.crew import crew
from benchmarks.measure import Effort
from benchmarks.result import Row, Target
from benchmarks.rivals import bare_ssh, ours_over_ssh
from benchmarks.scenarios.remote import MIB, put_and_fetched


def rows(effort: Effort) -> Iterator[Row]:
    """The target is 1.3 times what ssh takes by itself."""
    with crew((ours_over_ssh, bare_ssh)) as contenders:
        for size in effort.sizes(MIB, 16 * MIB, 128 * MIB):
            text = f"{size // MIB} MiB put and fetched over ssh"
            samples = contenders.compare(
                text, put_and_fetched, effort.rounds(15), size=size, seconds=effort.seconds(0.1)
            )
            yield Row(text, samples, (Target(1.3, times=bare_ssh.NAME),), at=size)
