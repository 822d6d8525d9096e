"""The handle on an array of the daemon, and all that can be done with one."""
