"""The ends of int64, and the keys reserved there (`encoding/keys.py`).

A separate module, so that kernels do not depend on the filter language."""

from __future__ import annotations

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

MISSING = INT64_MIN  # key of a missing value; as an upper bound, below every value
FIRST = INT64_MIN + 1  # least integer of an event, and least key of a value
LAST = INT64_MAX - 1  # greatest integer of an event, and greatest key of a value
NOTHING = INT64_MAX  # as a lower bound, above every value
INFINITY_KEY = 0x7FF0_0000_0000_0000
NAN_KEY = INFINITY_KEY + 1
