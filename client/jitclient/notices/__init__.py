"""Notices to users: names of programs, progress, warnings, hints."""
