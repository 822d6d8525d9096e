"""Side effects of traces in the daemon: ambient reads, output, warnings, and the lock that serializes traces."""
