"""Which opcodes of pickle values are written with: those of a peer are looked at before they are run.

Others could fill the memory (a memo's index), or overflow the stack of C (the hash of a tuple that is nested deeply).
"""

import pickle

_WITHOUT = b"".join(
    (
        *(pickle.STOP, pickle.MARK, pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE),
        *(pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3),
        *(pickle.EMPTY_LIST, pickle.APPEND, pickle.APPENDS, pickle.BINPERSID, pickle.REDUCE, pickle.STACK_GLOBAL),
    )
)
_FIXED = {
    **dict.fromkeys(_WITHOUT, 0),
    **{pickle.PROTO[0]: 1, pickle.FRAME[0]: 8, pickle.BINFLOAT[0]: 8},
    **{pickle.BININT1[0]: 1, pickle.BININT2[0]: 2, pickle.BININT[0]: 4},
}
_COUNTED = {
    **{pickle.SHORT_BINUNICODE[0]: 1, pickle.BINUNICODE[0]: 4, pickle.BINUNICODE8[0]: 8},
    **{pickle.SHORT_BINBYTES[0]: 1, pickle.BINBYTES[0]: 4, pickle.BINBYTES8[0]: 8},
    **{pickle.LONG1[0]: 1, pickle.LONG4[0]: 4},
}


def refuse_others(data: bytes) -> None:
    """Looks through a pickle.

    Raises:
        ValueError: it has opcodes that no value of ours is written with.
    """
    at = 0
    while at < len(data):
        opcode = data[at]
        at += 1
        fixed = _FIXED.get(opcode)
        if fixed is not None:
            at += fixed
        elif opcode in _COUNTED:
            start, at = at, at + _COUNTED[opcode]
            at += int.from_bytes(data[start:at], "little")
        else:
            raise ValueError(f"an opcode that is not ours: {opcode:#x}")
    if at != len(data):
        raise ValueError("it is cut off")
