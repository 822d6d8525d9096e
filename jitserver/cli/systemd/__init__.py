"""Daemons as systemd services: their unit files, and systemd's commands."""
