"""Interfaces to the operating system, the C library and systemd."""
