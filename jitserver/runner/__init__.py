"""Programs that commands run and look after: in the background, and again whenever one of their files is saved.

- `background.py`: one program at low priority, until it ends or its time is over; `notebook.py`: the program that
  executes a notebook
- `watching.py`: a program that runs again when a file is saved; `files.py`: which files those are
- `changes.py`: what changed in a file; `affected.py`: what follows for the programs of the last run
- `command.py`: command line of a run; `interrupts.py`: signals that end it
"""
