"""Arrays that live on this daemon: the budget of all, and those under a name."""
