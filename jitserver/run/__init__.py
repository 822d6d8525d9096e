"""`jitserver run`: a user's program, run by a process that has imported what such programs import."""
