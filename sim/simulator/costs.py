"""The cost of a message to its broker: none, the measured processor time, or a calibrated time.

`Free` and `Calibrated` are deterministic; `Measured` depends on this machine. A calibration is a small file:
for each kind of message a linear model in nanoseconds, fitted to the samples of a measured run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from covey.matcher.errors import CoveyError

FORMAT = "covey-calibration-1"


class CalibrationError(CoveyError, ValueError):
    """A calibration file is wrong, or there are no samples to fit."""


class Sample(NamedTuple):
    """One handled message: its kind, events, actions, the broker's subscriptions, and the processor time."""

    kind: str
    events: int
    actions: int
    subscriptions: int
    took_ns: int


@dataclass(frozen=True, slots=True)
class Model:
    """The cost of a kind of message: a base, and a part for each event, action and subscription."""

    base_ns: float = 0.0
    event_ns: float = 0.0
    action_ns: float = 0.0
    subscription_ns: float = 0.0

    def cost_ns(self, events: int, actions: int, subscriptions: int) -> int:
        return round(
            self.base_ns
            + self.event_ns * events
            + self.action_ns * actions
            + self.subscription_ns * subscriptions
        )


class Costs(Protocol):
    """`charge` returns how long the broker is busy with a message."""

    @property
    def measures(self) -> bool:
        """Whether samples need the real processor time."""
        ...

    def charge(self, sample: Sample) -> int: ...


class Free:
    """Brokers take no time."""

    measures = False

    def charge(self, sample: Sample) -> int:
        return 0


class Measured:
    """Brokers take the measured processor time, times `scale`; the samples are kept for `fit`."""

    measures = True

    def __init__(self, scale: float = 1.0, keep: int = 200_000) -> None:
        self.scale = scale
        self.samples: list[Sample] = []
        self._keep = keep

    def charge(self, sample: Sample) -> int:
        if len(self.samples) < self._keep:
            self.samples.append(sample)
        return round(sample.took_ns * self.scale)


class Calibrated:
    """Brokers take the time of a model; a kind of message without a model costs the highest base."""

    measures = False

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = dict(models)
        self._other = max(self.models.values(), key=lambda model: model.base_ns, default=Model())

    def charge(self, sample: Sample) -> int:
        model = self.models.get(sample.kind, self._other)
        return model.cost_ns(sample.events, sample.actions, sample.subscriptions)

    def save(self, path: str | Path) -> None:
        """Write the calibration file."""
        document = {
            "format": FORMAT,
            "models": {
                kind: {f.name: round(getattr(model, f.name), 3) for f in fields(model)}
                for kind, model in sorted(self.models.items())
            },
        }
        try:
            Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise CalibrationError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: str | Path) -> Calibrated:
        """Read a calibration file; `CalibrationError` naming the file and what is wrong with it."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise CalibrationError(f"{path}: not JSON: {error}") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise CalibrationError(f"{path}: not a calibration file; expected one of format {FORMAT}")
        models = document.get("models")
        if not isinstance(models, dict):
            raise CalibrationError(f"{path}: models is {models!r}; expected a model for each kind of message")
        known = {f.name for f in fields(Model)}
        for kind, model in models.items():
            if not isinstance(model, dict) or set(model) != known:
                raise CalibrationError(
                    f"{path}: models.{kind} is {model!r}; expected {', '.join(sorted(known))}"
                )
            for name, value in model.items():
                if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
                    raise CalibrationError(f"{path}: models.{kind}.{name} is {value!r}; expected nanoseconds")
        return cls({kind: Model(**model) for kind, model in models.items()})


def fit(samples: Iterable[Sample]) -> Calibrated:
    """Models of least squares without negative coefficients, for each sampled kind of message.

    The slowest hundredth of each kind is left out: it is noise of the machine.
    `CalibrationError` if there are no samples.
    """
    by_kind: dict[str, list[Sample]] = {}
    for sample in samples:
        by_kind.setdefault(sample.kind, []).append(sample)
    if not by_kind:
        raise CalibrationError("no message was handled: there are no samples to calibrate from")
    return Calibrated({kind: _fit_one(group) for kind, group in by_kind.items()})


def _fit_one(samples: list[Sample]) -> Model:
    took = np.array([s.took_ns for s in samples], dtype=np.float64)
    features = np.array([(1, s.events, s.actions, s.subscriptions) for s in samples], dtype=np.float64)
    usual = took <= np.quantile(took, 0.99)
    took, features = took[usual], features[usual]
    columns = [0] + [i for i in range(1, features.shape[1]) if np.ptp(features[:, i]) > 0]
    while True:
        shares, *_ = np.linalg.lstsq(features[:, columns], took, rcond=None)
        negative = [i for i, share in zip(columns, shares, strict=True) if share < 0]
        if not negative:
            break
        worst = columns[int(np.argmin(shares))]
        columns = [i for i in columns if i != worst]
        if not columns:
            return Model(base_ns=float(np.median(took)))
    coefficients = dict(zip(columns, (float(share) for share in shares), strict=True))
    return Model(*(coefficients.get(i, 0.0) for i in range(4)))
