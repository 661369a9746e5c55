"""`python -m benchmarks`: the documents' figures of Covey's speed, measured again, a module each. Runs in the
repository's folder, with `.[dev]` installed."""

from __future__ import annotations

import sys

from covey.cli.main import main

BENCHMARKS = {
    "arrangements": "What each arrangement of the cluster engine brings.",
    "bounds": "What bounds of memory count, and what processes hold.",
    "change": "A change of a subscription, beside cancelling and subscribing.",
    "control": "Brokers under a storm of changes, in virtual time.",
    "drift": "Adaptation to subscriptions and events that change.",
    "durable": "Durable events beside others.",
    "faults": "What cut links and killed brokers cost.",
    "gateway": "Browsers at a gateway.",
    "hostile": "What hostile clients cost the others.",
    "lone": "One event at a time, in Covey and in NATS and mosquitto.",
    "metrics": "The metrics of one run of any size, on one core and on more.",
    "operators": "Expensive operators, with shared evaluation and without.",
    "pauses": "The longest pauses of an engine while subscriptions change.",
    "peers": "Durable events in Covey and in other systems.",
    "routing": "The work of a broker's core per message.",
    "soak": "Brokers under load for a long time, while clients come and go.",
    "spark": "Many filters over a DataFrame, by Covey's engine and by joins of Spark.",
    "view": "The complete delta of a moved box.",
}
ABOUT = "Measure how fast Covey is.\n\nExample: python -m benchmarks hostile --attacks floods"


def benchmark(arguments: list[str] | None = None) -> None:
    table = [(name, f"benchmarks.{name}", name, text) for name, text in BENCHMARKS.items()]
    main(sys.argv[1:] if arguments is None else arguments, table, "python -m benchmarks", ABOUT)


if __name__ == "__main__":
    benchmark()
