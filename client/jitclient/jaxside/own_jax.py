"""The client's own jax, which computes whatever does not run on the daemon."""

from jitclient.jaxside import client_device, compilation_cache


def configure() -> None:
    """Pin this process's jax to its device, and make it keep its compilations, immediately or when it is imported.

    Raises:
        SettingsError: JITSERVER_CLIENT_DEVICE or JITSERVER_CLIENT_CACHE has an invalid value.
    """
    client_device.pin()
    compilation_cache.keep_compilations()
