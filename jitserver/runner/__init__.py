"""Programs that commands run and look after.

- `background.py`: one program at low priority, until it ends or its time is over; `notebook.py`: the program that
  executes a notebook
- `command.py`: command line of a run; `interrupts.py`: signals that end it
"""
