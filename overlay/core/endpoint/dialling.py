"""Which connection stays where both brokers of a link open one.

The overlay file says which broker dials, but the files of two brokers may name a link in different orders.
The connection that the broker with the lesser name opens then stays. Both brokers apply the rule to a
connection of their own that is open or under way, and dial only while they have none, so exactly one is left
whatever the order in which the two arrive.
"""

from __future__ import annotations

NEVER_LINKED_NS = 30 * 1_000_000_000
"""How long a neighbour that should dial may stay away before the operator is warned."""

NOT_DIALLED = (
    f"it has not connected for {NEVER_LINKED_NS // 1_000_000_000} s: by this broker's overlay file it dials, "
    "so its own file must name the link in the same order"
)


def own_prevails(own: str, neighbour: str) -> bool:
    """Whether the connection that the broker `own` opens stays, and not the neighbour's."""
    return own < neighbour


def both_dial(own: str, neighbour: str) -> str:
    """Why the other connection is refused."""
    return (
        f"brokers {own} and {neighbour} both dial: the connection of {min(own, neighbour)} is used; "
        "the link must be named in the same order in all overlay files"
    )
