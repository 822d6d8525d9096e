"""Shared by both sides for tracing: options of jit, functions over leaves, shardings, callbacks."""
