"""Kept arrays while clients die, race and restart: a name holds a whole tree, or nothing."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.core.settings import Settings
from jitclient.errors import ProtocolError
from jitclient.session.handshake import ask
from jitclient.wire.messages import Spec, Verb
from jitclient.wire.named_arrays import Find, Forget, FoundArrays, Holdings, Keep, KeptInfo


def kept(daemon: Any) -> list[KeptInfo]:
    found: Holdings = ask(Settings(address=daemon.address), Verb.ARRAYS, None, Holdings)
    return found.kept


def forget(daemon: Any, name: str) -> None:
    assert ask(Settings(address=daemon.address), Verb.FORGET, Forget(name), list[KeptInfo])


KILLED = """
    import jitclient.calls.puts
    from jitclient.session.session import Session
    tree = [np.full(1000, n, np.float32) for n in range(5)]
    WHERE
    jitclient.keep("x", tree)
    print("kept")
    signal.pause()
"""
PLACES = {
    "before all": "Session.run = lambda *_: (print('there'), signal.pause())",
    "between arrays and name": (
        "real = Session.ask\n"
        "    Session.ask = lambda self, verb, *rest: "
        "(print('there'), signal.pause()) if verb == 'keep' else real(self, verb, *rest)"
    ),
}


@pytest.mark.parametrize("where", PLACES)
@pytest.mark.parametrize("had", [False, True], ids=["a new name", "a name that holds something"])
def test_a_client_killed_in_the_middle_leaves_the_name_as_it_was(
    unharmed: Any, start_client: Any, client_of: Any, at_once: Any, where: str, had: bool
) -> None:
    if had:
        with client_of(unharmed.address):
            jitclient.keep("x", np.arange(3))
    before = [(one.name, one.label) for one in kept(unharmed)]
    client = start_client(unharmed, KILLED.replace("WHERE", PLACES[where]))
    client.says("there")
    client.kill()
    at_once(lambda: unharmed.counts().sessions == 0, "the session to end")
    assert unharmed.counts().arrays == 0
    assert [(one.name, one.label) for one in kept(unharmed)] == before
    if had:
        forget(unharmed, "x")


def test_what_a_killed_client_kept_stays(unharmed: Any, start_client: Any, client_of: Any, at_once: Any) -> None:
    client = start_client(unharmed, KILLED.replace("WHERE", ""))
    client.says("kept")
    client.kill()
    at_once(lambda: unharmed.counts().sessions == 0, "the session to end")
    with client_of(unharmed.address):
        found = jitclient.keep("x", [np.full(1000, n, np.float32) for n in range(5)])
        assert [float(x[-1]) for x in found] == [0, 1, 2, 3, 4]
        assert [one.arrays for one in kept(unharmed)] == [5]
    forget(unharmed, "x")


RACES = """
    def load():
        print("runs")
        sys.stdin.readline()
        return {"a": np.full(50_000, FILL, np.float32), "b": np.full(3, FILL, np.float32)}

    FILL = 1.0
    found = jitclient.keep("x", load)
    assert float(np.asarray(found["a"]).sum()) == 50_000
    print("done")
    sys.stdin.readline()
    assert [float(found["a"][7]), float(found["b"][2])] == [1.0, 1.0]
"""


def test_of_two_that_ask_at_once_one_is_kept_and_both_go_on(unharmed: Any, start_client: Any) -> None:
    clients = [start_client(unharmed, RACES) for _ in range(2)]
    for client in clients:
        client.says("runs")
    for client in clients:  # the second finds what the first has kept meanwhile
        client.goes_on()
        client.says("done")
    [found] = kept(unharmed)
    assert (found.arrays, found.nbytes) == (2, 200_012)
    assert unharmed.counts().array_bytes == 2 * 200_012  # of both, and the name's: the same ones
    for client in clients:
        client.goes_on()
        client.ends()
    forget(unharmed, "x")


def test_many_threads_keep_under_one_name(unharmed: Any, client_of: Any) -> None:
    trees = [[np.full(20_000, n, np.float32), np.full(5, n, np.float32)] for n in range(4)]
    failures: list[BaseException] = []

    def keep_often(tree: Any) -> None:
        try:
            for _ in range(10):
                big, small = jitclient.keep("x", tree)
                assert float(big[0]) == float(small[0]) == tree[0][0]
        except BaseException as error:
            failures.append(error)

    with client_of(unharmed.address):
        threads = [threading.Thread(target=keep_often, args=(tree,)) for tree in trees]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert [one.nbytes for one in kept(unharmed)] == [80_020]
    forget(unharmed, "x")


def test_when_the_daemon_died_the_function_runs_again(new_daemon: Any, client_of: Any, short_path: Path) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address) as daemon, client_of(address):
        found = jitclient.keep("x", lambda: np.arange(3))
        daemon.kill()
        daemon.wait()
        with new_daemon(address):
            assert jitclient.keep("x", lambda: np.arange(3)).tolist() == [0, 1, 2]
            with pytest.raises(jitclient.ArrayLost):
                jitclient.keep("y", [found])
            holdings = ask(Settings(address=address), Verb.ARRAYS, None, Holdings)
            assert [one.name for one in holdings.kept] == ["x"]


def test_peers_that_keep_what_they_do_not_have(peer: Any, unharmed: Any) -> None:
    peer.hello()
    spec = Spec((3,), "float32")
    with pytest.raises(jitclient.ArrayLost):
        peer.ask(Verb.KEEP, Keep("x", "k", (), (spec,), b"", "", (12345,), None))
    assert peer.ask(Verb.FIND, Find("x", "k", (), 1, None), FoundArrays | None) is None
    with pytest.raises(ProtocolError):
        peer.ask(Verb.KEEP, Keep("x", "k", (), (spec,), b"", "", (), None))
    assert not kept(unharmed)
