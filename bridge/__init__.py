"""Between Covey and other brokers: MQTT. A bridge is a client of both, and a process of its own
(docs/bridges.md).

Invariants of every bridge. What waits while one side is away is bounded, and what the bound drops is counted.
A message is acknowledged to the one side once the other has confirmed it. A message that makes no sense costs
nobody else one. What a bridge has published is not brought back.
"""
