"""Programs that run again whenever one of their files is saved.

- `watching.py`: a program that runs again when a file is saved; `files.py`: which files those are
- `changes.py`: what changed in a file; `affected.py`: what follows for the programs of the last run
- `command.py`: command line of a run; `interrupts.py`: signals that end it
"""
