r"""`matches(text, pattern)`: a regular expression of RE2 matches somewhere in a string, in linear time.

As `re.search`: `^` and `$` anchor a pattern. RE2's syntax has no back-references and look-around. There are
two bindings of RE2, and each call uses the faster: google-re2 caches compiled patterns and takes 1 us per
string; Arrow compiles a pattern for each call and then takes 0.1 us per string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import re2

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.arguments import parsed_once
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes

LARGEST_PROGRAM = 10_000
"""The most instructions of a compiled pattern. Where text defeats RE2's automaton, time grows with them."""

_TEXTS = frozenset({Kind.STRING})


@parsed_once
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    shown = repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        reason = reason if len(reason) <= 100 else f"{reason[:97]}..."
        raise ValueError(f"pattern {shown}: {reason}, expected a regular expression of RE2") from None
    if compiled.programsize > LARGEST_PROGRAM:
        raise ValueError(
            f"pattern {shown}: compiled to {compiled.programsize} instructions, "
            f"expected at most {LARGEST_PROGRAM}"
        )
    return compiled


def _evaluate(text: Any, pattern: str) -> Any:
    compiled = _compiled(pattern)
    arrow_us = 8 + compiled.programsize // 2 + len(pattern) // 16  # to compile the pattern
    if len(text) > arrow_us:
        try:
            return pc.match_substring_regex(text, pattern)
        except pa.ArrowInvalid:  # syntax that this Arrow's RE2 has not
            pass
    search = compiled.search
    return np.array([search(value) is not None for value in text.to_pylist()], np.bool_)


def _check(arguments: Sequence[Any]) -> None:
    if arguments[1] is not None:
        _compiled(arguments[1])


MATCHES = NamedOperator(
    name="matches",
    parameters=(Parameter("text", _TEXTS, Takes.ATTRIBUTE), Parameter("pattern", _TEXTS, Takes.CONSTANT)),
    evaluate=_evaluate,
    summary="a regular expression (RE2) matches somewhere in a string",
    check=_check,
    package="google-re2",
)
