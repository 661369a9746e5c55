"""How Covey uses gRPC: options of servers and channels, and the names of its methods.

HTTP/2 pings detect a dead peer (a pulled cable, a stopped machine) within about five seconds, at no
measurable cost. Connections are direct, never through a proxy of the environment, and never shared between
channels, so that each attempt to connect opens a new connection.
"""

from __future__ import annotations

import grpc.aio

from covey.overlay.transport.packets import SERVICE

CONNECT = f"/{SERVICE}/Connect"
DESCRIBE = f"/{SERVICE}/Describe"
INSPECT = f"/{SERVICE}/Inspect"
EXPLAIN = f"/{SERVICE}/Explain"
FOLLOW = f"/{SERVICE}/Follow"

_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 3_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_SMALLEST_MESSAGE = 4 << 20


def _message_sizes(max_frame_bytes: int | None) -> tuple[tuple[str, int], ...]:
    # A frame holds one message at least, whatever its size; the slack leaves room for such a one.
    largest = -1 if max_frame_bytes is None else max(_SMALLEST_MESSAGE, 2 * max_frame_bytes)
    return ("grpc.max_receive_message_length", largest), ("grpc.max_send_message_length", largest)


def server_options(max_frame_bytes: int) -> list[tuple[str, int]]:
    return [
        *_KEEPALIVE,
        *_message_sizes(max_frame_bytes),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]


def open_channel(address: str, max_frame_bytes: int | None = None) -> grpc.aio.Channel:
    """A channel to a broker; it connects when it is first used.

    With None gRPC bounds no message: a client learns the frame size from the hello of the broker.
    """
    return grpc.aio.insecure_channel(
        address,
        options=[
            *_KEEPALIVE,
            *_message_sizes(max_frame_bytes),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.enable_retries", 0),
        ],
    )


def reason_of(error: grpc.aio.AioRpcError, address: str) -> str:
    """One clear sentence on why a call failed."""
    details = error.details() or ""
    if error.code() is grpc.StatusCode.UNAVAILABLE and "connect" in details.lower():
        return f"no broker answers at {address}"
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return f"the server at {address} is not a Covey broker"
    return details or error.code().name
