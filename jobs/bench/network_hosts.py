"""Hosts on this machine, each a network namespace whose link can be cut, and an `ssh` that runs commands on them.

They need root and `ip`. Names and addresses are unique to this process, and everything is removed after the block.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.231.9"
SSH = """#!/bin/sh
# ssh OPTION... -- HOST COMMAND: in the namespace of the host
until [ "$1" = -- ]; do shift; done
name="$(echo "$2" | sed "s/.*[.]/{prefix}/")"
shift 2
exec ip netns exec "$name" sh -c "$*"
"""


@dataclass(frozen=True)
class Hosts:
    """Hosts on a bridge; this machine has an address on it, too."""

    prefix: str
    addresses: tuple[str, ...]
    folder: Path

    @property
    def interface(self) -> str:
        """The bridge here, and the interface of every host."""
        return f"{self.prefix}b"

    @property
    def file(self) -> Path:
        """Their addresses, one per line, as cluster/ssh.sh reads them."""
        return self.folder / "hosts.txt"

    def set_link(self, address: str, state: str) -> None:
        """Set the link of a host "up" or "down"."""
        ip(f"link set {self.prefix}v{address.rpartition('.')[2]} {state}")


@contextmanager
def network_hosts(number: int, folder: Path) -> Iterator[Hosts]:
    """So many hosts; in `folder` a program `ssh` that reaches them, for the front of the PATH."""
    prefix = f"m{os.getpid()}"
    hosts = Hosts(prefix, tuple(f"{NETWORK}.{i}" for i in range(1, number + 1)), folder)
    folder.mkdir(exist_ok=True)
    hosts.file.write_text("".join(f"{address}\n" for address in hosts.addresses))
    (folder / "ssh").write_text(SSH.replace("{prefix}", prefix))
    (folder / "ssh").chmod(0o755)
    bridge = hosts.interface
    with ExitStack() as made:
        made.callback(ip, f"link delete {bridge}")
        ip(f"link add {bridge} type bridge", f"addr add {NETWORK}.254/24 dev {bridge}", f"link set {bridge} up")
        for i, address in enumerate(hosts.addresses, 1):
            made.callback(ip, f"netns delete {prefix}{i}")
            ip(
                f"netns add {prefix}{i}",
                f"link add {prefix}v{i} type veth peer name {bridge} netns {prefix}{i}",
                f"link set {prefix}v{i} master {bridge} up",
                f"-n {prefix}{i} addr add {address}/24 dev {bridge}",
                f"-n {prefix}{i} link set {bridge} up",
                f"-n {prefix}{i} link set lo up",
            )
        yield hosts


def ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True, timeout=20)
