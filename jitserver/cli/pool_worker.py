"""The command `jitserver pool-worker`, which a pool runs on each of its hosts."""

import click

from jitclient.pools import worker


@click.command("pool-worker", hidden=True)
def pool_worker() -> None:
    """Run tasks of `jitclient.pool`, for the program at the other end of standard input and output."""
    worker.run()
