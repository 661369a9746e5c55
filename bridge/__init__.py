"""Bridges between Covey and other brokers, such as MQTT's: clients of both, in processes of their own
(docs/bridges.md).

Invariants: what waits for an absent side is bounded, and dropped messages are counted; a message is
acknowledged to one side once the other has confirmed it; an invalid message costs no other message; a bridge
does not bring back what it has published.
"""
