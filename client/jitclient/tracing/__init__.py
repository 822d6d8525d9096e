"""What both ends need to trace a function: what it is given and returns, where it runs, what it calls back."""
