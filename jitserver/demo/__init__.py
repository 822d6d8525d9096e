"""The program that `jitserver demo` runs twice. It is written as a user would write it."""
