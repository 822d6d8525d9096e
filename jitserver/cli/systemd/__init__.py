"""Daemons as systemd services: their units, and the commands of systemd."""
