"""The checker of routing state (`sim/checkers/routes.py`) for a `Network` of bare cores."""

from types import SimpleNamespace
from typing import Any

from core_network import Network

from covey.sim.checkers import Findings, check_routes


def check_links(network: Network) -> None:
    """`AssertionError` if a link does not carry what the clients' subscriptions imply."""
    overlay: Any = SimpleNamespace(
        links=network.links,
        brokers={name: SimpleNamespace(core=broker) for name, broker in network.brokers.items()},
        clients={name: _client(client) for name, client in network.clients.items()},
        clock=SimpleNamespace(now_ns=0),
        damping=0.0,
        durable={name for broker in network.brokers.values() for name in broker.tables.durable},
        merging=network.merging,
        merging_budget=3,
    )
    findings = Findings()
    check_routes(overlay, findings)
    assert not findings, [str(finding) for finding in findings.first]


def _client(client: Any) -> Any:
    session = client.session
    return SimpleNamespace(
        name=client.name, broker=client.broker, session=session, subscriptions=session.subscriptions
    )
