"""grpcio as the independent peer of Covey's own gRPC."""

import grpc.aio

Channel = grpc.aio.Channel


def grpcio_channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ],
    )
