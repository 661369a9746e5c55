"""Control on a link: the latest values win, and order is kept where it matters."""

from dataclasses import replace

from core_ends import BELOW, drain, exchange, pair, update
from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.core.link.control_queue import ControlQueue
from covey.overlay.core.link.link import CONTROL_BYTES
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Acknowledge, Message, Refuse, Subscribe, Unsubscribe, Update


def control(*messages: Message) -> list[Message]:
    a, b = pair()
    for message in messages:
        a.send(message)
    return drain(a, b)


def test_a_later_message_carries_the_newest_epoch() -> None:
    messages_sent = control(
        update(1, 1, limit=1.0), update(2, 2, limit=9.0), update(3, 1, limit=2.0), Unsubscribe(4, 2)
    )
    assert messages_sent == [Update(1, 1, {"limit": 2.0}), Update(2, 2, {"limit": 9.0}), Unsubscribe(4, 2)]


def test_of_merged_updates_of_a_view_the_receiver_knows_that_it_missed_one() -> None:
    first = Update(2, 1, {"limit": 1.0}, for_views=True, after_epoch=1)
    second = Update(3, 1, {"limit": 2.0}, for_views=True, after_epoch=2)
    assert control(first) == [first]
    assert control(first, second) == [Update(3, 1, {"limit": 2.0}, for_views=True)]
    other = update(3, 2, limit=9.0)
    assert control(first, other, replace(second, epoch=4)) == [
        Update(2, 1, {"limit": 2.0}, for_views=True),
        other,
        Update(4, 1, {}),
    ]


def test_values_never_overtake_a_subscribe_or_unsubscribe() -> None:
    subscribe = Subscribe(2, 2, BELOW, {"limit": 5.0})
    messages = [update(1, 1, limit=1.0), subscribe, update(3, 1, limit=2.0), Unsubscribe(4, 1)]
    assert control(*messages) == messages


def test_only_the_newest_acknowledgement_is_sent() -> None:
    assert control(Acknowledge(1), Acknowledge(2), update(1, limit=1.0), Acknowledge(3)) == [
        update(1, limit=1.0),
        Acknowledge(3),
    ]


def test_an_acknowledgement_never_overtakes_a_refusal() -> None:
    refusal = Refuse(2, "INVALID_ARGUMENT", "no")
    assert control(Acknowledge(1), refusal, Acknowledge(2)) == [refusal, Acknowledge(2)]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("ab"), st.integers(0, 9)), max_size=30))
def test_merged_updates_give_the_same_values_and_the_newest_epoch(
    changes: list[tuple[int, str, int]],
) -> None:
    expected: dict[int, dict[str, float]] = {}
    messages: list[Message] = []
    for epoch, (subscription, name, value) in enumerate(changes, 1):
        expected.setdefault(subscription, {})[name] = value
        messages.append(Update(epoch, subscription, {name: value}))
    values_received: dict[int, dict[str, float]] = {}
    epochs = []
    messages_sent = control(*messages)
    for message in messages_sent:
        assert isinstance(message, Update)
        epochs.append(message.epoch)
        for name, value in message.values.items():
            assert isinstance(value, int)
            values_received.setdefault(message.subscription_id, {})[name] = value
    assert values_received == expected
    assert epochs == sorted(set(epochs))
    assert epochs[-1:] == ([len(changes)] if changes else [])
    assert len(messages_sent) <= 4


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)) | st.none(), max_size=60),
    st.integers(1, 900),
    st.integers(1, 900),
)
def test_every_frame_ends_in_a_state_that_existed(
    steps: list[tuple[int, int] | None], stretch: int, full: int
) -> None:
    """Updates may overtake within one frame alone: else a peer could see one subscription narrow before
    another widens to cover the difference."""
    queue = ControlQueue()
    values_sent: dict[int, int] = {}
    states: list[dict[int, int]] = [{}]
    values_received: dict[int, int] = {}
    reached = 0
    for step in [*steps, *[None] * 70]:
        if step is None:
            messages, size = queue.take(full)
            for message in messages:
                assert isinstance(message, Update)
                if message.values:
                    values_received[message.subscription_id] = message.values["a"]
            reached = next(i for i in range(reached, len(states)) if states[i] == values_received)
            assert size <= max(full, 96) + max(stretch, 96)
        else:
            subscription, value = step
            values_sent[subscription] = value
            states.append(dict(values_sent))
            queue.append(Update(len(states), subscription, {"a": value}), stretch)
    assert values_received == values_sent
    assert len(queue) == 0


def test_control_is_sent_in_frames_of_bounded_size() -> None:
    a, b = pair(frames_in_flight=1000)
    exchange(a, b)
    updates = [update(i, i, limit=1.0) for i in range(1, 1001)]
    for message in updates:
        a.send(message)
    frames = []
    while (frame := a.next_frame()) is not None:
        frames.append(frame)
    assert [message for frame in frames for message in frame.messages] == updates
    assert all(sum(size_of(message) for message in frame.messages) <= CONTROL_BYTES for frame in frames)
    assert len(frames) == -(-1000 // (CONTROL_BYTES // size_of(updates[0])))


def test_a_slow_link_has_one_pending_update_per_subscription() -> None:
    """What a frame leaves behind still absorbs later updates."""
    queue = ControlQueue()
    for epoch in range(1, 10_001):
        queue.append(update(epoch, epoch % 1000, limit=float(epoch)), 1 << 20)
        if epoch % 500 == 0:
            queue.take(1000)
    assert len(queue) <= 1000
