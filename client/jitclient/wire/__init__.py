"""Protocol between client and daemon. `messages` has the whole contract."""
