"""What holds for all tests: a slow machine fails none of them, kernels check the types of arguments, and a
message stays as it was made.
"""

from typing import get_args

from hypothesis import HealthCheck, settings

from covey.matcher.jit.kernel import check_types
from covey.overlay.core.messages import Action, Message

settings.register_profile(
    "covey", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("covey")
check_types()


def set_once(message: object, name: str, value: object) -> None:
    """`__setattr__` of messages: they are no frozen dataclasses, for what that costs (`messages.message`)."""
    if hasattr(message, name):
        raise AttributeError(f"{name} of {message!r} becomes {value!r}: expected a message not to change")
    object.__setattr__(message, name, value)


for kind in (*get_args(Message), *get_args(Action)):
    kind.__setattr__ = set_once
