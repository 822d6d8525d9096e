from .leaf import on_leaf
