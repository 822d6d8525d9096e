from . import register


@register
def double(x):
    return x * 2


@register
def triple(x):
    return x * 3
