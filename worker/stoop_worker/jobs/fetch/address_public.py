"""Recognises the IP addresses of the public internet, so that images are fetched from no others."""

import ipaddress
from typing import Final

__all__ = ["is_public"]

# IANA's special-purpose registries, and the addresses that clouds add. Written out, because Python's own answer changed
# between versions and counts some multicast as global.
_SPECIAL_V4: Final = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by carriers, and metadata in one cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's own host, which looks public from inside
        "169.254.0.0/16",  # link-local, and metadata in most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and metadata in one cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_GLOBAL_V6: Final = ipaddress.IPv6Network("2000::/3")
_SPECIAL_V6: Final = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: carries an IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)


def is_public(ip: str) -> bool:
    """Return whether this IP address belongs to a host on the public internet.

    An IPv6 address that carries an IPv4 one (mapped, compatible, NAT64, 6to4, Teredo) never does, because its target
    depends on a gateway. All of these except the last two are outside 2000::/3.
    """
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)
