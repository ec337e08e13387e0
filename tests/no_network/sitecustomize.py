"""
Refuses connections to other machines, and writes down which test asked for them.

Python runs a module of this name at its start if the folder is on PYTHONPATH, so the processes that tests start are
blocked, too. Sockets that C or Rust code opens itself are not blocked.
"""

import functools
import gc
import ipaddress
import os
import socket


# Processes of tests import much and leave little to collect: collections took a seventh of the time.
gc.set_threshold(200_000, 50, 100)

# The environment variable with the path of the file of refused connections.
REFUSED = "REFUSED_CONNECTIONS"
HERE = {None, "", b"", "localhost", socket.gethostname()}


class ConnectionRefused(ConnectionError):
    """Raised for a connection to another machine."""


def is_here(host: str | bytes | None) -> bool:
    """Returns True if a host is this machine."""
    if host in HERE:
        return True
    try:
        address = ipaddress.ip_address(host.decode() if isinstance(host, bytes) else host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def check(host: str | bytes | None):
    """Raises a [`ConnectionRefused`] for another machine."""
    if is_here(host):
        return
    if path := os.environ.get(REFUSED):
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{host!r} in {os.environ.get('PYTEST_CURRENT_TEST')}\n")
    raise ConnectionRefused(f"Tests reach no other machine, but {host!r} was asked for.")


def block():
    """Adds the check to every function by which Python reaches other machines."""

    def guard_address(method):
        @functools.wraps(method)
        def guarded(self, *arguments):
            # The address is always the last argument.
            if self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(arguments[-1], tuple):
                check(arguments[-1][0])
            return method(self, *arguments)

        return guarded

    def guard_host(function):
        @functools.wraps(function)
        def guarded(host, *arguments, **settings):
            check(host)
            return function(host, *arguments, **settings)

        return guarded

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, guard_address(getattr(socket.socket, name)))
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, guard_host(getattr(socket, name)))


block()
