"""The programs that `jitserver demo` and `jitserver doctor` run, written as users would write them."""
