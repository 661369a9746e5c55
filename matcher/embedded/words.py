"""Values of variables as words: an int64 and a type number each, exact in both directions.

INTEGER  the integer          FLOAT  the bits of a float64       BOOLEAN  0 or 1
TIME     microseconds since 1970                                 TEXT     the number of a string"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.compile.bounds import Values
from covey.matcher.events.times import microseconds, moment_of
from covey.matcher.expressions.expression import Scalar
from covey.matcher.expressions.values import Family

Numbers = npt.NDArray[np.int64]


class Texts:
    """Numbers of strings, with a count of users each."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str | None] = []
        self._users: list[int] = []
        self._free: list[int] = []

    def __getitem__(self, number: int) -> str:
        text = self._texts[number]
        assert text is not None
        return text

    def __len__(self) -> int:
        return len(self._numbers)

    def acquire(self, text: str, users: int = 1) -> int:
        """The number of a string, with `users` more."""
        number = self._numbers.get(text)
        if number is None:
            number = self._free.pop() if self._free else len(self._texts)
            if number == len(self._texts):
                self._texts.append(None)
                self._users.append(0)
            self._numbers[text] = number
            self._texts[number], self._users[number] = text, 0
        self._users[number] += users
        return number

    def release(self, numbers: Numbers) -> None:
        """Remove one user per number, and strings without users."""
        distinct, counts = np.unique(numbers, return_counts=True)
        for number, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            self._users[number] -= count
            if self._users[number] == 0:
                del self._numbers[self[number]]
                self._texts[number] = None
                self._free.append(number)


INTEGER, FLOAT, BOOLEAN, TIME, TEXT = range(5)
_TYPES = {bool: BOOLEAN, int: INTEGER, float: FLOAT, str: TEXT, datetime: TIME}
_COLUMN_TYPES = {Family.BOOL: BOOLEAN, Family.TIMESTAMP: TIME}
Words = npt.NDArray[np.int64]
Types = npt.NDArray[np.uint8]


def word_of(value: Scalar, texts: Texts, users: int = 1) -> tuple[int, int]:
    """The word and type of a value in its inner form, for `users` users."""
    kind = _TYPES[type(value)]
    if isinstance(value, str):
        return texts.acquire(value, users), kind
    if isinstance(value, datetime):
        return microseconds(value), kind
    return int(np.float64(value).view(np.int64)) if kind == FLOAT else int(value), kind


def write_column(family: Family, values: Values, texts: Texts, words: Words, types: Types) -> None:
    """Write the words and types of checked values (`bounds.check_columns`): a column, or one for all."""
    if isinstance(values, pa.Array):
        encoded = values.dictionary_encode()
        indices = encoded.indices.to_numpy()
        users = np.bincount(indices, minlength=len(encoded.dictionary)).tolist()
        pairs = zip(encoded.dictionary.to_pylist(), users, strict=True)
        words[:] = np.array([texts.acquire(text, count) for text, count in pairs], dtype=np.int64)[indices]
        types[:] = TEXT
    elif not isinstance(values, np.ndarray):
        words[:], types[:] = word_of(values, texts, len(words))
    elif values.dtype == np.object_:
        each = [word_of(value, texts) for value in values.tolist()]
        words[:], types[:] = np.array(each, dtype=np.int64).reshape(-1, 2).T
    elif values.dtype == np.float64:
        words[:], types[:] = values.view(np.int64), FLOAT
    else:
        words[:], types[:] = values, _COLUMN_TYPES.get(family, INTEGER)


def values_of(words: list[int], types: list[int], texts: Texts | list[str]) -> list[Scalar]:
    floats = np.array(words, dtype=np.int64).view(np.float64).tolist() if FLOAT in types else words
    return [_value(*each, texts) for each in zip(words, types, floats, strict=True)]


def _value(word: int, kind: int, number: float, texts: Texts | list[str]) -> Scalar:
    if kind == FLOAT:
        return number
    if kind == TEXT:
        return texts[word]
    if kind == TIME:
        return moment_of(word)
    return bool(word) if kind == BOOLEAN else word


def column_of(words: Words, types: Types, texts: Texts | list[str]) -> Any:
    """The values of one variable as a column for engines."""
    kinds = np.unique(types).tolist()
    if kinds == [FLOAT]:
        return words.view(np.float64)
    if kinds == [TIME]:
        return words.view("datetime64[us]")
    if kinds == [BOOLEAN]:
        return words.astype(np.bool_)
    return words if kinds == [INTEGER] else values_of(words.tolist(), types.tolist(), texts)
