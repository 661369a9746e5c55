"""The names that metrics share: columns of a trace and of what is computed from it, kinds of rows, phases.

What a column of a trace holds is said in `sim/trace/trace.py`.
"""

from __future__ import annotations

RUN = "run"
"""The name of a run: where its trace lies, not what it says."""

# --- a trace ------------------------------------------------------------------------------------------------
ROW = "row"
TIME_NS = "time_ns"
KIND = "kind"
NODE = "node"
PEER = "peer"
NAME = "name"
PUBLISHER = "publisher"
SEQUENCE = "sequence"
SUBSCRIPTION = "subscription"
COUNT = "count"
TEXT = "text"

STEPPED = "stepped"
"""Whether the clock had been put back before this row."""
SETUP = "setup"
"""Whether a row comes before the phase `running`: brokers come up, clients advertise and subscribe."""
MEASURED = "measured"
"""Whether a row lies in the phase `running`, up to `resting`: what is counted per second is counted there."""

BROKERS = "broker/"
"""How the interfaces of brokers begin."""

EVENT = (PUBLISHER, SEQUENCE)
"""What names an event."""
DELIVERY = (RUN, NODE, SUBSCRIPTION, *EVENT)
"""What names a delivery: an event, and a subscription of a client."""
CHANGE = (RUN, NODE, SUBSCRIPTION, COUNT)
"""What names a change of a subscription."""

# --- what is computed ---------------------------------------------------------------------------------------
COMPLETE = "complete"
CLOCK_STEPS = "clock_steps"
DURATION_NS = "duration_ns"
SCENARIO = "scenario"
DELAY_NS = "delay_ns"
DELIVERED_NS = "delivered_ns"
LATENCY_NS = "latency_ns"
BROKER = "broker"
SOURCE = "source"
TARGET = "target"
SORT = "sort"
TIMES = "times"
MESSAGES = "messages"
EVENTS = "events"
BUSY_NS = "busy_ns"

# --- kinds of rows ------------------------------------------------------------------------------------------
BEGUN, PHASE, WORKED, ENDED = "begun", "phase", "worked", "ended"
SUBSCRIBED, UPDATED, ANSWERED = "subscribed", "updated", "answered"
PUBLISHED, DELIVERED, SPURIOUS, DROPPED = "published", "delivered", "spurious", "dropped"
OWED, EXCUSED, CONTROL, CARRIED = "owed", "excused", "control", "carried"

# --- phases of a run ----------------------------------------------------------------------------------------
RUNNING, RESTING = "running", "resting"
