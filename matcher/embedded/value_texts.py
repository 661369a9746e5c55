"""The strings among the values of subscriptions, each stored once while a value refers to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


class Texts:
    """A number per string, and how many values have it."""

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
        """The number of a string, with so many users more."""
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
        """Remove one user per number; strings without users are gone."""
        distinct, counts = np.unique(numbers, return_counts=True)
        for number, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            self._users[number] -= count
            if self._users[number] == 0:
                del self._numbers[self[number]]
                self._texts[number] = None
                self._free.append(number)
