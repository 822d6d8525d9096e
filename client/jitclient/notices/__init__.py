"""What a user is told on the way: names of programs, progress, warnings, advice."""
