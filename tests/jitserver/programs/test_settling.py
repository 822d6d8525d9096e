"""Programs that no client finds until the trace of one agrees; in a process of their own, as they need an engine."""

from collections.abc import Callable
from typing import Any

import pytest

BEGIN = """
    import json
    from pathlib import Path

    import jitclient
    from jitclient.capture.dump import capture
    from jitclient.errors import CaptureError
    from jitclient.jaxside import tree
    from jitclient.wire.messages import Lookup, Manifest, Prepare, Settle, Signature, Spec
    from jitserver.store.memory import MemoryTier
    from jitserver.store.disk import Store
    from jitserver.store.tiers import Tiers
    from jitserver.store.write_behind import Writer
    from jitserver.programs.counters import Counters
    from jitserver.store.journal import Journal
    from jitserver.programs import keys
    from jitserver.programs.programs import Programs

    def asked(fun):
        found = capture(fun)
        structure = tree.encode(tree.structure_of(tree.flatten(((1.0,), {}))[1]))
        signature = Signature(structure, (Spec((), "float32", True),), (), (), (), ())
        return Prepare(Lookup(found.key, found.key, found.packages, signature), "f", ""), found.payload

    def prepared(request, payload):
        return programs.prepare(keys.call_key(request.lookup), request, payload)

    programs = Programs(Counters(), Tiers(MemoryTier(1 << 30, 1000), Store(Path(), 0), Writer(lambda: 0)), Journal())
    request, payload = asked(lambda x: x + 1)
    lookup = request.lookup
"""


def test_a_candidate_is_found_once_it_is_settled(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    first, made = prepared(request, payload)
    again, made_again = prepared(request, payload)
    before = programs.find(lookup)
    programs.settle(Settle(lookup, "f", Manifest(), agrees=True))
    print(json.dumps([made, made_again, first is again, before, programs.find(lookup).entry is first]))
    """
    assert run_script(program) == [True, False, True, None, True]


def test_a_program_is_found_under_its_manifest_alone(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    import msgspec

    def found(state):
        known = msgspec.structs.replace(lookup, manifests=(Manifest(("package:GAIN",), (state,)),))
        hit = programs.find(known)
        return None if hit is None else hit.level

    prepared(request, payload)
    programs.settle(Settle(lookup, "f", Manifest(("package:GAIN",), (b"two",)), agrees=True))
    programs.settle(Settle(lookup, "f", Manifest(("package:GAIN",), (b"bad",)), why="it differs"))
    try:
        refused = found(b"bad")
    except CaptureError as error:
        refused = str(error)
    print(json.dumps([programs.find(lookup), found(b"two"), found(b"five"), refused]))
    """
    assert run_script(program) == [[["package:GAIN"]], "memory", None, "it differs"]


def test_one_key_for_two_functions_gives_neither_the_others_program(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    keys.call_key = lambda lookup, real=keys.call_key(lookup): real
    def told(call, *args):
        try:
            return call(*args)
        except CaptureError as error:
            return str(error)

    other, payload_of_other = asked(lambda x: x + 2)
    prepared(request, payload)
    prepared(request, payload)  # another client: the candidate stays when the first has settled
    waiting = told(prepared, other, payload_of_other)
    programs.settle(Settle(lookup, "f", Manifest(), agrees=True))
    settled = told(prepared, other, payload_of_other)
    settling = told(programs.settle, Settle(other.lookup, "f", Manifest(), agrees=True))
    found = [programs.find(lookup) is not None, programs.find(other.lookup)]
    print(json.dumps([*found, waiting, settled, settling]))
    """
    same = "a different function has the same call key"
    assert run_script(program) == [True, None, same, same, same]


def test_clients_that_missed_together_compare_one_trace_whoever_is_the_first(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    def agrees(order_free):
        return programs.settle(Settle(lookup, "f", Manifest(), order_free=order_free)).agrees

    entry, _ = prepared(request, payload)
    prepared(request, payload)
    mine = entry.program.order_free()
    asked = [agrees(mine[::-1]), agrees(mine), agrees(mine), agrees(mine)]
    print(json.dumps([*asked, programs.find(lookup).entry.program.shown_evidence().order_free == mine]))
    """
    # The first answer leaves the candidate to the client that asked; the last one comes when no client waits for it.
    assert run_script(program) == [False, True, True, None, True]


def test_a_client_whose_trace_differs_learns_which_data_of_packages_differs(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    from jitclient.capture import manifest

    names = ("string:digits", "string:capwords")
    ours = manifest.state_of(names)
    prepared(request, payload)
    answer = programs.settle(Settle(lookup, "f", Manifest(names, (b"other", ours[1]))))
    print(json.dumps([answer.agrees, answer.differing, programs.find(lookup)]))
    """
    assert run_script(program) == [False, ["string:digits"], None]


def test_the_traces_of_the_oldest_candidates_are_freed(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    from jitserver.programs import programs as module

    module._MAX_CANDIDATES = 2
    found = []
    for n in range(3):
        entry, _ = prepared(*asked(eval(f"lambda x: x * {{n}}")))
        found.append(entry)
    print(json.dumps([bool(entry.program.trace.digest) for entry in found]))
    """
    assert run_script(program) == [False, True, True]


def test_a_generator_that_changed_once_is_no_reason_to_fail(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    from jitclient.errors import AmbientInput
    from jitserver.programs import programs as module
    from jitserver.programs.exceptions import TraceRaised
    from jitserver.programs.traces import ambient

    def changes(times, real=module.program.from_capture):
        def from_capture(*arguments):
            nonlocal times
            times -= 1
            if times >= 0:
                raise AmbientInput(ambient.OF_GENERATORS)
            return real(*arguments)
        return from_capture

    module.program.from_capture = changes(2)
    try:
        prepared(request, payload)
        failed = False
    except TraceRaised:
        failed = True
    module.program.from_capture = changes(1)
    _, made = prepared(request, payload)
    print(json.dumps([failed, made, programs.counters.traces]))
    """
    assert run_script(program) == [True, True, 4]


@pytest.mark.parametrize("prefix", ["", "f"])
def test_refusals_are_removed_with_the_programs(run_script: Callable[..., Any], prefix: str) -> None:
    program = f"""{BEGIN}
    def refuses():
        try:
            programs.find(lookup)
        except CaptureError:
            return True
        return False

    prepared(request, payload)
    programs.settle(Settle(lookup, "f", Manifest(), why="it differs"))
    found = [refuses()]
    for prefix in ("other", {prefix!r}):
        programs.remove(prefix)
        found.append(refuses())
    print(json.dumps(found))
    """
    assert run_script(program) == [True, True, False]


def test_a_program_that_was_settled_since_the_look_up_is_traced_again_to_be_compared(
    run_script: Callable[..., Any],
) -> None:
    program = f"""{BEGIN}
    first, _ = prepared(request, payload)
    programs.settle(Settle(lookup, "f", Manifest(), agrees=True))
    other, made = prepared(request, payload)
    agrees = programs.settle(Settle(lookup, "f", Manifest(), order_free=other.program.order_free())).agrees
    print(json.dumps([made, agrees, programs.find(lookup).entry is first]))
    """
    assert run_script(program) == [True, True, True]


def test_a_program_without_an_executable_is_made_again_and_says_why(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    import msgspec
    from jitserver.programs import serialization

    def refuse(program):
        raise ValueError("the comparison is not serializable.\\nmore")

    def made_on(disk):
        writer = Writer(lambda: 0)
        cache = Tiers(MemoryTier(1 << 30, 1000), Store(disk, 1 << 30), writer)
        return Programs(Counters(), cache, Journal()), writer

    serialization.executable_of = refuse
    disk = Path("disk")
    disk.mkdir()
    programs, writer = made_on(disk)
    request = msgspec.structs.replace(request, manifest=Manifest())
    prepared(request, payload)
    assert writer.finish(60)
    [info] = programs.cache.infos()
    programs.cache.close(60)
    other, writer = made_on(disk)
    hit = other.find(lookup)
    again = other.find(lookup)
    found = other.counters
    levels = [hit.level, hit.entry.program.why_remade, again.level]
    print(json.dumps([info.no_executable, levels, found.hits, found.misses]))
    other.cache.close(60)
    """
    why = "the comparison is not serializable."
    assert run_script(program) == [why, ["remade", why, "memory"], 1, 1]


def test_a_processor_whose_executables_xla_refuses_asks_it_once(run_script: Callable[..., Any]) -> None:
    program = f"""{BEGIN}
    import logging
    import jax
    import msgspec
    from jax.experimental import serialize_executable

    def made_on(disk):
        cache = Tiers(MemoryTier(1 << 30, 1000), Store(disk, 1 << 30), Writer(lambda: 0))
        return Programs(Counters(), cache, Journal())

    def refuse(*arguments, **options):
        attempts.append(1)
        raise jax.errors.JaxRuntimeError("Target machine feature +avx512f is missing. Compile machine features: []")

    both = [asked(fun) for fun in (lambda x: x + 1, lambda x: x * 2)]
    disk = Path("disk")
    disk.mkdir()
    programs = made_on(disk)
    for request, payload in both:
        prepared(msgspec.structs.replace(request, manifest=Manifest()), payload)
    programs.cache.close(60)
    stored = [info.no_executable for info in made_on(disk).cache.infos()]

    attempts, warnings = [], []
    serialize_executable.deserialize_and_load = refuse
    logging.getLogger("jitserver.programs.programs").addFilter(
        lambda record: record.levelno < logging.WARNING or warnings.append(record.getMessage())
    )
    programs = made_on(disk)
    levels = [programs.find(request.lookup).level for request, _ in both]
    programs.cache.close(60)
    later = [info.no_executable for info in made_on(disk).cache.infos()]
    print(json.dumps([stored, levels, len(attempts), len(warnings), later]))
    """
    why = "XLA refuses stored executables on this processor: Target machine feature +avx512f is missing."
    assert run_script(program) == [["", ""], ["remade"] * 2, 1, 1, [why] * 2]
