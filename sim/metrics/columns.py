"""Names that metrics share: columns of traces and of computed tables, kinds of rows, phases.

`sim/trace/trace.py` describes the columns of a trace.
"""

from __future__ import annotations

RUN = "run"
"""The name of a run, taken from the path of its trace."""

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
"""Whether the clock was set back before this row."""
SETUP = "setup"
"""Whether a row precedes the phase `running`: brokers start, clients advertise and subscribe."""
MEASURED = "measured"
"""Whether a row lies in the phase `running`, before `resting`. Rates count only these rows."""

BROKERS = "broker/"
"""Prefix of the interfaces of brokers."""

EVENT = (PUBLISHER, SEQUENCE)
"""Identifies an event."""
DELIVERY = (RUN, NODE, SUBSCRIPTION, *EVENT)
"""Identifies a delivery: an event and a subscription of a client."""
CHANGE = (RUN, NODE, SUBSCRIPTION, COUNT)
"""Identifies a change of a subscription."""

# --- computed -----------------------------------------------------------------------------------------------
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
MESSAGE_KIND = "message_kind"
TIMES = "times"
MESSAGES = "messages"
EVENTS = "events"
BUSY_NS = "busy_ns"

# --- kinds of rows ------------------------------------------------------------------------------------------
BEGUN, PHASE, WORKED, ENDED = "begun", "phase", "worked", "ended"
SUBSCRIBED, UPDATED, ANSWERED = "subscribed", "updated", "answered"
PUBLISHED, DELIVERED, SPURIOUS, DROPPED = "published", "delivered", "spurious", "dropped"
EXPECTED, EXCUSED, CONTROL, CARRIED = "expected", "excused", "control", "carried"

# --- phases of a run ----------------------------------------------------------------------------------------
RUNNING, RESTING = "running", "resting"
