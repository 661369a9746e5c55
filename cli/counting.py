"""A client session that counts published events, without those that the broker refused."""

from __future__ import annotations

from covey.matcher import EventBatch
from covey.overlay.core.client.actions import ClientAction
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Message, Publish, Refuse


class CountingSession(ClientSession):
    """`published` is final once all published batches are acknowledged."""

    published = 0

    def publish(self, batch: EventBatch) -> Publish:
        sent = super().publish(batch)
        self.published += len(batch)
        return sent

    def receive(self, message: Message) -> list[ClientAction]:
        actions = super().receive(message)
        self.published -= sum(action.count for action in actions if isinstance(action, Refuse))
        return actions
