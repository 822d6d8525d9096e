"""Settings, digests, threads, and notices to users."""
