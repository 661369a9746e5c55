"""Messages: values that nothing changes."""

from __future__ import annotations

from typing import get_args

import pytest

from covey.overlay.core.messages import Action, Message, Update


def test_messages_are_immutable_in_tests() -> None:
    """So it is in every test (`tests/conftest.py`): what changes a message of its own fails."""
    message = Update(1, 7, {"limit": 5})
    with pytest.raises(AttributeError, match=r"epoch of Update\(.*\) becomes 2: expected a message not to"):
        message.epoch = 2
    assert message == Update(1, 7, {"limit": 5})
    kinds = {*get_args(Message), *get_args(Action)}
    assert len({kind.__setattr__ for kind in kinds}) == 1
    assert object.__setattr__ not in {kind.__setattr__ for kind in kinds}
