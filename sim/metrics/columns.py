"""Names that metrics share: columns of traces (`sim/trace/tables.py`) and of computed tables, and phases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column

# --- a trace ------------------------------------------------------------------------------------------------
RUN = "run"
PHASE = "phase"
TIME_NS = "time_ns"
PUBLISHER = "publisher"
SEQUENCE = "sequence"
CLIENT = "client"
SUBSCRIPTION = "subscription"
VERSION = "version"
EVENT_TYPE = "event_type"
FILTER = "filter"
VALUES = "values"
INGRESS_NS = "ingress_ns"
EXCUSED = "excused"
SOURCE = "source"
TARGET = "target"
KIND = "kind"
MESSAGES = "messages"
EVENTS = "events"
BROKER = "broker"
BUSY_NS = "busy_ns"
WHAT = "what"
NUMBER = "number"

BROKERS = "broker/"

EVENT = (RUN, PUBLISHER, SEQUENCE)
SUBSCRIBED = (RUN, CLIENT, SUBSCRIPTION)
DELIVERY = (*EVENT, CLIENT, SUBSCRIPTION)
"""Identifies a delivery, of an event to a subscription."""

WITH_EVENTS = ("Publish", "Deliver")
"""Kinds of messages that carry events; the others are control messages."""

# --- computed -----------------------------------------------------------------------------------------------
METRIC = "metric"
KEY = "key"
VALUE = "value"
DELAY_NS = "delay_ns"
LATENCY_NS = "latency_ns"
DELIVERED_NS = "delivered_ns"
PUBLISHED_NS = "published_ns"
CHANGED_NS = "changed_ns"
TIMES = "times"

# --- phases -------------------------------------------------------------------------------------------------
SETUP = ("advertising", "subscribing", "warming up")
RUNNING, RESTING = "running", "resting"


def measured() -> Column:
    """Whether a row lies in the phase `running`; true for rows without a phase."""
    return f.coalesce(f.col(PHASE) == RUNNING, f.lit(True))


def after_setup() -> Column:
    """Whether a row lies in the phase `running` or later; true for rows without a phase."""
    return f.coalesce(~f.col(PHASE).isin(*SETUP), f.lit(True))
