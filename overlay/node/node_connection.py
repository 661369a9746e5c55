"""A connection of a neighbour or client: between the call that carries its frames and the node's endpoint."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from covey.overlay.core.access.rights import Rights
from covey.overlay.core.link.link import Hello, LinkError
from covey.overlay.core.messages import Interface
from covey.overlay.node.node import Node
from covey.overlay.transport.address import CallError
from covey.overlay.transport.packets import Greeting, Role, encode_greeting
from covey.overlay.transport.rpc_call import (
    LinkEnd,
    PeerClosedError,
    RpcCall,
    StreamClosedError,
)
from covey.overlay.transport.wire_values import MalformedPacketError

log = logging.getLogger("covey.broker")


def greeting(node: Node, interface: Interface, hello: Hello) -> Greeting:
    """The node's greeting for an interface."""
    overlay = node.overlay
    options = overlay.shared_options() if interface.startswith("broker/") else {}
    return Greeting(Role.BROKER, node.name, hello, overlay.name, limits=overlay.limits, options=options)


class NodeConnection:
    """One connection, from its hello to its end; `dialled` if this node has opened it, `durable` for a
    client's session that outlives it.
    """

    def __init__(
        self, node: Node, interface: Interface, call: RpcCall, *, dialled: bool, durable: bool = False
    ) -> None:
        self._node = node
        self._interface = interface
        self._call = call
        self.wake = call.wake
        self._durable = durable
        self._dialled = dialled
        self._refusal: StreamClosedError | None = None
        self._decided = asyncio.Event()

    async def run(self) -> None:
        """Serve the connection until it ends. `StreamClosedError` for the peer, if this side ends it."""
        await self._decided.wait()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            try:
                raise refusal
            finally:
                refusal = None  # its traceback has this frame
        node, endpoint, interface, call = self._node, self._node.endpoint, self._interface, self._call
        # Subscriptions for a broker carry their event type, which a broker that starts does not know yet; so
        # do those of a durable session for its client.
        of_broker = interface.startswith("broker/")
        end = LinkEnd(
            partial(node.receive, interface, self),
            partial(endpoint.next_frame, interface, self),
            self._durable or of_broker,
            None if of_broker else partial(endpoint.delay_ns, interface),
        )
        why = "the connection broke"
        left = False
        try:
            await call.exchange(end, await_end=self._dialled)
            why = call.details or why
        except PeerClosedError as error:
            moves = interface.startswith("client/") or node.repairing is not None
            why, left = str(error), error.status == "OK" and moves
        except StreamClosedError as error:
            why = str(error)
            raise
        except (LinkError, MalformedPacketError) as error:
            why = str(error)
            log.warning("%s broke the protocol: %s", interface, error)
            call.say_goodbye("INVALID_ARGUMENT", why)
            raise StreamClosedError("INVALID_ARGUMENT", why) from None
        except Exception as error:
            node.fail(error)
            raise
        finally:
            del end  # it has this connection, and a traceback may have this frame: a reference cycle
            if left:
                node.goodbye(interface, self, why)
            else:
                node.lost(interface, self, why)

    def keeps(self, rights: Rights | None) -> bool:
        """Whether a client would have the same rights if it connected now."""
        try:
            name = self._interface.partition("/")[2]
            return self._node.authentication.rights(self._call, name) == rights
        except CallError:
            return False

    # --- what the endpoint calls ----------------------------------------------------------------------------

    def opened(self, answer: Hello, resumed: bool) -> None:
        self._call.send(encode_greeting(greeting(self._node, self._interface, answer)))
        self.began(resumed)

    def began(self, resumed: bool) -> None:
        """Hellos were exchanged."""
        log.info("%s connected%s", self._interface, ", resumed" if resumed else "")
        self._call.trust()
        self._decided.set()

    def close(self, status: str, reason: str) -> None:
        if not self._decided.is_set():
            self._refusal = StreamClosedError(status, reason)
            self._decided.set()
        else:
            self._call.close(status, reason)

    def charge(self, permits: float) -> None:
        self._call.charge(permits)
