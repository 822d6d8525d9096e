"""Daemons that systemd runs: whose units they are, their text, and the commands that drive them."""
