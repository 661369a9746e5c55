"""Conflation: of the events that wait for a client, the last of each key for each of its subscriptions.

Invariants: what is left is in its order; an event goes only where a later one of the same key waits for every
subscription that it would be delivered to. Events without a key (an absent attribute), those of stored
records and those out of their order (replayed) stay, and supersede nothing. Work per event is numpy's and
Arrow's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.messages import Deliver, Message


def may_be_superseded(message: Message, key: str) -> bool:
    """Whether its events have a place in a sequence of states."""
    return (
        isinstance(message, Deliver)
        and not message.stored
        and not message.replayed
        and key in message.batch.event_type.attributes
    )


def newest(messages: Sequence[Deliver], key: str) -> list[npt.NDArray[np.bool_]]:
    """Which events stay, one mask per message. O(n log n) in the pairs of an event and a subscription."""
    codes = key_codes([message.batch for message in messages], key)
    counts = np.concatenate([np.diff(message.offsets) for message in messages])
    ids = np.concatenate([message.ids for message in messages])
    rows = np.repeat(np.arange(len(codes)), counts)
    stays = last_of_each(codes[rows], ids, rows, len(codes)) | (codes < 0)
    return np.split(stays, np.cumsum([len(message.batch) for message in messages])[:-1])


def key_codes(batches: Sequence[EventBatch], key: str) -> npt.NDArray[np.int64]:
    """A number per event, equal where the key is; -1 where it is absent."""
    return codes_of([_column(batch, key) for batch in batches])


def codes_of(columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """As `key_codes`. No key of one Arrow type is that of another: columns differ in it where a type was
    forgotten and declared again while its events waited.
    """
    by_kind: dict[pa.DataType, list[int]] = {}
    for position, column in enumerate(columns):
        by_kind.setdefault(column.type, []).append(position)
    parts: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * len(columns)
    base = 0
    for positions in by_kind.values():
        own = [columns[position] for position in positions]
        encoded = pa.chunked_array(own).dictionary_encode().unify_dictionaries()
        indices = pa.chunked_array([each.indices for each in encoded.chunks])
        codes = np.asarray(indices.fill_null(-1).to_numpy(), dtype=np.int64)
        codes = np.where(codes < 0, -1, codes + base)
        base = max(base, int(codes.max(initial=-1)) + 1)
        ends = np.cumsum([len(column) for column in own])
        for position, part in zip(positions, np.split(codes, ends[:-1]), strict=True):
            parts[position] = part
    return np.concatenate(parts)


def _column(batch: EventBatch, key: str) -> pa.Array:
    if batch.columns is None:
        return batch.record_batch.column(key)
    index = batch.event_type.index(key)
    return pa.array(batch.columns.values(index), batch.event_type.kinds[index].arrow)


def last_of_each(
    codes: npt.NDArray[np.int64], ids: npt.NDArray[np.integer], rows: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.bool_]:
    """bool[count]: the rows that are the last of a pair of code and id; `rows` ascend."""
    order = np.lexsort((ids, codes))  # which is stable
    sorted_codes, sorted_ids = codes[order], ids[order]
    ends = np.ones(len(order), np.bool_)
    ends[:-1] = (sorted_codes[1:] != sorted_codes[:-1]) | (sorted_ids[1:] != sorted_ids[:-1])
    stays = np.zeros(count, np.bool_)
    stays[rows[order[ends]]] = True
    return stays


def chosen(message: Deliver, mask: npt.NDArray[np.bool_]) -> Deliver:
    """The message with only its events where `mask` is true."""
    counts = np.diff(message.offsets)
    offsets = np.zeros(int(mask.sum()) + 1, message.offsets.dtype)
    np.cumsum(counts[mask], out=offsets[1:])
    ids = message.ids[np.repeat(mask, counts)]
    return replace(message, batch=message.batch.filter(mask), offsets=offsets, ids=ids)
