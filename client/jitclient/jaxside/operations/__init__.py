"""Single operations outside of jitted functions, traced and lowered before a process is forked that will need them.

JAX traces and lowers each of them in each process, which takes longer than the rest of many a program. Here a process
notes which it traced. Another one, that has started no backend, prepares them. What it forks finds them where the
operation, the types of its arguments and all of JAX's settings are the same. JAX's own caches keep nothing of it, so
that what the program itself traces is as without it. Where a version of jax lacks any of this, nothing is noted.
"""
