def k(x):
    from usual.h import k as inner

    return inner(x) + 1
