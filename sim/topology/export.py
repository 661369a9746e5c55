"""A topology as an overlay file, which `covey up` and `covey sim` run, and as a compose file."""

from __future__ import annotations

from pathlib import PurePosixPath

import yaml

from covey.sim.topology.topology import Topology, TopologyError

FIRST_PORT = 7001
_CONTAINER_PORT = 7001


def overlay_file(topology: Topology, *, port: int = FIRST_PORT, containers: bool = False) -> str:
    """The overlay file: brokers at 127.0.0.1 from `port` on, or each in a container of its own name.

    Raises `TopologyError` if the ports do not suffice.
    """
    last = port + len(topology.brokers) - 1
    if not containers and not 0 < port <= last < 65_536:
        raise TopologyError(
            f"{len(topology.brokers)} brokers from port {port} on need ports up to {last}: "
            "expected at most 65535"
        )
    lines = [f"overlay: {_quoted(topology.name)}", "routing: parametric"]
    if containers:
        lines.append("insecure: true  # plain text between containers; docs/security.md has TLS")
    lines.append("brokers:")
    for number, broker in enumerate(topology.brokers):
        address = (
            f'{{address: "{broker}:{_CONTAINER_PORT}", listen: "0.0.0.0:{_CONTAINER_PORT}"}}'
            if containers
            else f'{{address: "127.0.0.1:{port + number}"}}'
        )
        role = topology.roles.get(broker)
        lines.append(f"  {_quoted(broker)}: {address}" + (f"  # {role}" if role else ""))
    lines.append("links:" if topology.links else "links: []")
    for link in topology.links:
        ends = f"[{_quoted(link.a)}, {_quoted(link.b)}]"
        lines.append(f"  - {{ends: {ends}, delay_ms: {link.delay_ms:g}}}")
    return "\n".join(lines) + "\n"


def compose_file(topology: Topology, overlay: str, *, port: int = FIRST_PORT) -> str:
    """A compose file with a container and a host port for each broker of the overlay file `overlay`."""
    for broker in topology.brokers:
        if not broker.isascii() or not broker.replace("-", "").replace("_", "").isalnum():
            raise TopologyError(f"broker {broker!r}: expected letters, digits, - and _ for a container")
    source = overlay if PurePosixPath(overlay).is_absolute() else f"./{overlay}"
    common = {
        "image": "covey",
        "pull_policy": "never",
        "init": True,
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "covey", "health"],
            "interval": "10s",
            "timeout": "10s",
            "start_period": "60s",
            "retries": 3,
        },
        "stop_grace_period": "15s",
        "mem_limit": "1g",
        "pids_limit": 200,
        "ulimits": {"nofile": 16_384},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "volumes": [f"{source}:/etc/covey/overlay.yaml:ro"],
    }
    services = {
        broker: {
            **common,
            "environment": {"COVEY_BROKER": broker},
            "ports": [f"127.0.0.1:{port + number}:{_CONTAINER_PORT}"],
        }
        for number, broker in enumerate(topology.brokers)
    }
    comment = f"# {len(topology.brokers)} brokers of the image `covey` (docker build -t covey .).\n"
    return comment + yaml.dump({"services": services}, Dumper=_Plain, sort_keys=False)


class _Plain(yaml.SafeDumper):
    """Writes no anchors and aliases, for the sake of readers."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _quoted(name: str) -> str:
    """A name as YAML text, in quotes only if it needs them."""
    plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum() and name[0].isalpha()
    if plain and isinstance(yaml.safe_load(name), str):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
