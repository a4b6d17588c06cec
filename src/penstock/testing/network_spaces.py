"""Network namespaces for several processes on this machine, so that packets between two of them can
be dropped, one way or both, while all others still communicate.

Needs Linux, root and `ip` of iproute2. No side gets an error, as when a switch fails between two
machines. Invariant: `close` removes all that `open` has created.
"""

import os
import shutil
import subprocess
from contextlib import suppress

from penstock.server.local_cluster import BrokerLocation

_NETS = range(1, 250)  # the X of 10.213.X.0/24: one per bridge
_DEVICE = "eth0"
_TIMEOUT_S = 120
_NOBODY = "02:00:00:00:00:01"  # a hardware address that no device has


class NoNamespaces(Exception):
    """Network namespaces are not available here; the message says why."""


class NetworkSpaces:
    """Numbered from 1, on one bridge that this process is on too."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._net = 0  # the bridge's; 0: there is none

    def open(self) -> None:
        """NoNamespaces if that is not possible."""
        _check_possible()
        self._net = _add_bridge()
        try:
            for number in range(1, self._count + 1):
                self._add(number)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if not self._net:
            return
        for number in range(1, self._count + 1):
            with suppress(NoNamespaces):  # if it was never created
                _ip("link", "del", self._device(number))  # a namespace may outlive its name
            with suppress(NoNamespaces):
                _ip("netns", "del", self._name(number))
        _ip("link", "del", _bridge(self._net))
        self._net = 0

    @property
    def own_host(self) -> str:
        """The address of this process as seen from all of them."""
        return _address(self._net, 254)

    def location(self, number: int) -> BrokerLocation:
        return BrokerLocation(
            _address(self._net, number), ("ip", "netns", "exec", self._name(number))
        )

    def cut(self, source: int, target: int) -> None:
        """Drop packets from source to target; the other direction still works."""
        neighbour = ("neigh", "replace", self.location(target).host, "dev", _DEVICE)
        _ip("-n", self._name(source), *neighbour, "lladdr", _NOBODY, "nud", "permanent")

    def join(self, source: int, target: int) -> None:
        host = self.location(target).host
        _ip("-n", self._name(source), "neigh", "del", host, "dev", _DEVICE)

    def _device(self, number: int) -> str:
        return f"{_bridge(self._net)}-{number}"

    def _add(self, number: int) -> None:
        name, device = self._name(number), self._device(number)
        _ip("netns", "add", name)
        _ip("link", "add", device, "type", "veth", "peer", "name", _DEVICE, "netns", name)
        _ip("link", "set", device, "master", _bridge(self._net), "up")
        _ip("-n", name, "addr", "add", f"{_address(self._net, number)}/24", "dev", _DEVICE)
        _ip("-n", name, "link", "set", _DEVICE, "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _name(self, number: int) -> str:
        return f"{_bridge(self._net)}-{number}"


def _check_possible() -> None:
    if shutil.which("ip") is None:
        raise NoNamespaces("`ip` is not installed; install iproute2")
    if os.geteuid() != 0:
        raise NoNamespaces("only root may create network namespaces")


def _add_bridge() -> int:
    """Create the first bridge that does not exist yet."""
    refused = NoNamespaces("every network is taken")
    for net in _NETS:
        try:
            _ip("link", "add", _bridge(net), "type", "bridge")
        except NoNamespaces as error:
            refused = error
            if "exists" in str(error):
                continue
            break
        _ip("addr", "add", f"{_address(net, 254)}/24", "dev", _bridge(net))
        _ip("link", "set", _bridge(net), "up")
        return net
    raise refused


def _bridge(net: int) -> str:
    return f"penstock{net}"


def _address(net: int, number: int) -> str:
    return f"10.213.{net}.{number}"


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ("ip", *arguments), capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    if done.returncode != 0:
        raise NoNamespaces(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
