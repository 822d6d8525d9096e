"""The exceptions are those that the page of the module draws, with these bases."""

import re

from jitclient import errors


def test_the_classes_are_those_of_the_drawing() -> None:
    drawn: dict[str, list[str]] = {}
    above = {-1: "Exception"}
    for line in (errors.__doc__ or "").splitlines()[2:]:
        if found := re.match(r"([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?", line):
            depth = len(found[1]) // 4
            above[depth] = found[2]
            drawn[found[2]] = [above[depth - 1], *filter(None, [found[3]])]
    assert len(drawn) > 10
    assert drawn == {
        name: [base.__name__ for base in value.__bases__]
        for name, value in vars(errors).items()
        if isinstance(value, type)
    }
