"""Command `jitserver run`: a user's program, run by a process that has already imported the usual modules."""
