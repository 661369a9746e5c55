"""Operators with faults, as a module that a test's brokers import. In the test's own process, the client's,
each is true for x > 5."""

import ctypes
import os
import sys
import time
from typing import Any

import numpy as np

from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.matcher.operators.table import register, unregister

HANG_S = 0.5
IN_BROKER = "pytest" not in sys.modules


def _true(x: Any) -> Any:
    return x.to_numpy() > 5


def _raising(x: Any) -> Any:
    raise ValueError(f"no answer for {len(x)} events")


def _exiting(x: Any) -> Any:
    sys.exit(7)


def _sleeping(x: Any) -> Any:
    time.sleep(HANG_S)
    return _true(x)


def _spinning(x: Any) -> Any:
    while True:
        pass


def _gil_keeping(x: Any) -> Any:
    """A library that keeps the GIL, and so stops the process."""
    ctypes.PyDLL(None).usleep(int(HANG_S * 1e6))
    return _true(x)


def _wrong_type(x: Any) -> Any:
    return "true"


def _wrong_length(x: Any) -> Any:
    return np.ones(len(x) + 1, np.bool_)


def _fickle(x: Any) -> Any:
    """Its answer at b1 differs from all others."""
    return _true(x) if "b1" in sys.argv else ~_true(x)


def _slow(x: Any) -> Any:
    time.sleep(1e-4 * len(x))
    return _true(x)


FAULTS = {
    "raising": _raising,
    "exiting": _exiting,
    "sleeping": _sleeping,
    "spinning": _spinning,
    "gil_keeping": _gil_keeping,
    "wrong_type": _wrong_type,
    "wrong_length": _wrong_length,
}
NUMBER = Parameter("x", NUMBERS)


def register_all() -> None:
    """The broker that COVEY_BROKER_WITHOUT names lacks `known_elsewhere`, all brokers `known_to_client`."""
    for name, evaluate in FAULTS.items():
        register(NamedOperator(name, (NUMBER,), evaluate if IN_BROKER else _true))
    register(NamedOperator("steady", (NUMBER,), _true))
    register(NamedOperator("slow", (NUMBER,), _slow if IN_BROKER else _true))
    register(NamedOperator("fickle", (NUMBER,), _fickle))
    if not IN_BROKER or os.environ.get("COVEY_BROKER_WITHOUT") not in sys.argv:
        register(NamedOperator("known_elsewhere", (NUMBER,), _true))
    if not IN_BROKER:
        register(NamedOperator("known_to_client", (NUMBER,), _true))


def unregister_all() -> None:
    for name in (*FAULTS, "steady", "slow", "fickle", "known_elsewhere", "known_to_client"):
        unregister(name)


if IN_BROKER:
    register_all()
