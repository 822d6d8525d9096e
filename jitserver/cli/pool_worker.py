"""The command `jitserver pool-worker`, which a pool runs for each worker on this machine and over ssh."""

import click

from jitclient.pools import on_dask


@click.command("pool-worker", hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def pool_worker(words: tuple[str, ...]) -> None:
    """Run tasks of `jitclient.pool`, as `dask worker WORDS` does."""
    on_dask.work(words)
