"""Configuration of jax in a process that uses jitserver."""

from jitclient.jaxside import client_device, compilation_cache


def configure() -> None:
    """Make this process's jax leave the accelerator to the daemon, and keep its compilations for later processes.

    Applies immediately, or when the program imports jax.

    Raises:
        SettingsError: JITSERVER_CLIENT_DEVICE or JITSERVER_CLIENT_CACHE has an invalid value.
    """
    client_device.pin()
    compilation_cache.keep_compilations()
