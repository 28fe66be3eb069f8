"""Certificates of one run: only processes with its key can communicate with its scheduler and workers.

    python -m mllkm_scale.cluster.certificates scheduler.json.tls

makes a folder with a certificate, which all processes of the run present and trust, and its key; only the owner can
read both. A client finds them beside the scheduler file: ``scheduler.json`` and ``scheduler.json.tls/``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mllkm_scale.errors import ClusterError, MLLKMError

if TYPE_CHECKING:
    from distributed.security import Security

__all__ = ["security_beside", "security_in", "temporary_security", "write_certificates"]

CERTIFICATE, KEY = "cert.pem", "key.pem"


def temporary_security() -> Security:
    """A new certificate, in memory; connections without it are refused."""
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError as error:
        raise ClusterError(
            "the certificates of a cluster need the package cryptography: pip install cryptography, or switch"
            " encryption off with --insecure (insecure = true) where no others can reach this network"
        ) from error


def write_certificates(folder: Path) -> None:
    """Make the folder, with a new certificate and its key in it; files of an earlier run are replaced.

    Raises
    ------
    ClusterError
        If the folder cannot be written.
    """
    security: Any = temporary_security()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        for name, text in ((CERTIFICATE, security.tls_scheduler_cert), (KEY, security.tls_scheduler_key)):
            (folder / name).unlink(missing_ok=True)
            handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(str(text))
    except OSError as error:
        why = error.strerror or error
        raise ClusterError(f"{folder} cannot be written ({why}): name a scheduler file in another folder") from error


def security_in(folder: Path) -> Security:
    """Security settings of scheduler, worker and client with the certificate in a folder."""
    from distributed.security import Security

    certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
    roles = ("scheduler", "worker", "client")
    files = {f"tls_{role}_cert": certificate for role in roles} | {f"tls_{role}_key": key for role in roles}
    return Security(require_encryption=True, tls_ca_file=certificate, **files)


def security_beside(scheduler_file: Path) -> Security | None:
    """Security settings with the certificates beside a scheduler file; None if there are none.

    Raises
    ------
    ClusterError
        If others can read the key, which would make it useless.
    """
    folder = Path(f"{scheduler_file}.tls")
    key = folder / KEY
    try:
        mode = os.stat(key).st_mode
    except OSError:
        return None
    if mode & 0o077:
        raise ClusterError(f"{key} can be read by others: chmod 600 it, and start the cluster again")
    return security_in(folder)


if __name__ == "__main__":
    try:
        write_certificates(Path(sys.argv[1]))
    except MLLKMError as failure:
        sys.exit(str(failure))
