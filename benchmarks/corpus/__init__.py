"""Programs that people bring: as plain JAX, then under `jitclient.install()` in two fresh processes, and compared."""
