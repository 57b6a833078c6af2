# SPDX-License-Identifier: Apache-2.0
"""Cluster-unique 64-bit ids from the host's idd.

    import idclient

    with idclient.Client() as client:  # $IDD_SOCKET, else /run/idd/idd.sock
        orders = client.tag("orders")
        order_id = orders.claim()

A claim takes an id from memory that idd shares with the programs of the host. It waits only when
that has none, for at most the client's timeout, without the GIL. Failures are subclasses of Error
with the attributes `status` and `retryable`.
"""

from idclient._idclient import (
    Client,
    DeniedError,
    Error,
    IncompatibleError,
    InvalidError,
    NoSuchTagError,
    OutOfIdsError,
    SystemError,
    Tag,
    TagInfo,
    TimeoutError,
    UnavailableError,
    library_version,
)

__version__ = "0.1.0"

__all__ = [
    "Client",
    "DeniedError",
    "Error",
    "IncompatibleError",
    "InvalidError",
    "NoSuchTagError",
    "OutOfIdsError",
    "SystemError",
    "Tag",
    "TagInfo",
    "TimeoutError",
    "UnavailableError",
    "library_version",
]

if library_version != __version__:
    raise ImportError(
        f"idclient {__version__} was loaded with libidclient {library_version}; install one version of both"
    )
