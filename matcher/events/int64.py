"""The ends of int64, and the keys reserved there (`encoding/keys.py`).

A module of its own, so that kernels depend on nothing that changes with the filter language.
"""

from __future__ import annotations

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

MISSING = INT64_MIN
"""The key of a missing value; as an upper bound, below every value."""
FIRST = INT64_MIN + 1
"""The least integer of an event, and the least key of a value."""
LAST = INT64_MAX - 1
"""The greatest integer of an event, and the greatest key of a value."""
NOTHING = INT64_MAX
"""As a lower bound, above every value."""
INFINITY_KEY = 0x7FF0_0000_0000_0000
NAN_KEY = INFINITY_KEY + 1
