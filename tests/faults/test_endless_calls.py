"""Programs that never end, whose clients have gone: they are shown, and hold nothing up."""

import json
import signal
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ENDLESS = """
    import jax
    from jitclient.session import process

    def watch():
        while getattr(process.session().connection, "phase", "") != "running":
            time.sleep(0.01)
        print("long")

    @jitclient.jit
    def endless(x):
        return jax.lax.while_loop(lambda y: y > 0, lambda y: y + 1, x)

    jitclient.device_put(np.float32(1))  # connects
    print("ready")
    threading.Thread(target=watch, daemon=True).start()
    try:
        float(endless(np.float32(1)))
    except KeyboardInterrupt:
        print("interrupted")
    sys.stdin.readline()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_an_endless_call_whose_client_has_gone_is_shown_and_holds_nothing_up(
    serve: Any, start_client: Any, until: Any, cli: Any, end: signal.Signals
) -> None:
    with serve("--drain", "600") as daemon:
        env = {"JITSERVER_ADDRESS": daemon.address}

        def calls() -> Any:
            return json.loads(cli("status", "--calls", "--json", env=env).stdout)["activity"]["running"]

        assert calls() == []
        client = start_client(daemon, ENDLESS)
        client.says("ready", "long")
        [call] = until(calls, "the call to run for long")
        assert (call["label"], call["pid"], call["gone"]) == ("endless(f32[])", client.pid, False)
        assert daemon.counts().abandoned == 0
        client.kill(end)
        until(lambda: daemon.counts().abandoned == 1, "the call to be abandoned")
        assert [call["gone"] for call in calls()] == [True]
        shown = cli("status", "--calls", env=env).stdout
        assert "see `jitserver status --calls`" in shown
        for part in ("endless(f32[])", "has exited", "--drain"):
            assert part in shown
        if end == signal.SIGINT:
            client.says("interrupted")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        if end == signal.SIGINT:
            client.goes_on()
            assert (
                "jitserver: the daemon cannot interrupt a call that it runs; `jitserver status --calls`"
                in client.ends()
            )
