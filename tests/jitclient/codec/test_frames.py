"""Tracebacks of captured code say where the code is in the caller's files now."""

from jitclient.codec.capture import capture, load

SOURCE = """
def helper(x):
    y = x + 1
    return y / 0

class A:
    def run(self, x):
        return helper(x)

def fn(x):
    return [A().run(v) for v in (x,)][0]
"""


def frames_of(loaded, locations=b""):
    try:
        loaded.fn(1)
    except ZeroDivisionError as error:
        return loaded.user_frames(error.__traceback__, locations)
    raise AssertionError("it should have failed")


def expected(path, offset):
    lines = {"fn": 11, "A.run": 8, "helper": 4}
    return [(str(path), line + offset, name) for name, line in lines.items()]


def found(frames):
    """Comprehensions are frames of their own before Python 3.12."""
    return [(f.file, f.line, f.name) for f in frames if "listcomp" not in f.name]


def test_frames_are_at_the_callers_lines(write, tmp_path):
    module = write(um_frames=SOURCE)
    made = capture(module.fn)
    loaded = load(made.payload, made.locations)
    path = tmp_path / "um_frames.py"
    assert found(frames_of(loaded)) == expected(path, 0)


def test_moved_source(write, tmp_path):
    module = write(um_frames=SOURCE)
    made = capture(module.fn)
    loaded = load(made.payload, made.locations)
    moved = capture(write(um_frames="# one\n# two\n" + SOURCE.replace("y", "renamed")).fn)
    assert moved.key == made.key
    assert found(frames_of(loaded, moved.locations)) == expected(tmp_path / "um_frames.py", 2)


def test_shared_classes_have_the_places_of_each_caller(write, tmp_path):
    first = capture(write(um_frames=SOURCE).fn)
    loaded = load(first.payload, first.locations)
    other = capture(write(um_frames_b="\n\n\n" + SOURCE + "\nfn.__name__ = 'fn'\n").fn, ("other",))
    again = load(other.payload, other.locations)
    assert loaded.index_of(object()) is None
    assert found(frames_of(again)) == expected(tmp_path / "um_frames_b.py", 3)


def test_without_locations_names_remain(write):
    loaded = load(capture(write(um_frames=SOURCE).fn).payload)
    names = [f.name for f in frames_of(loaded) if "listcomp" not in f.name]
    assert names == ["fn", "run", "helper"]
    assert loaded.user_frames(None) == []


def test_imported_source_has_places_too(write, tmp_path):
    write(um_fails="\n\ndef fail(x):\n    return x / 0\n")
    made = capture(write(um_importer="def fn(x):\n    import um_fails\n    return um_fails.fail(x)\n").fn)
    frames = frames_of(load(made.payload, made.locations))
    assert (str(tmp_path / "um_fails.py"), 4, "fail") in found(frames)
