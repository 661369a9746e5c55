from collections.abc import Iterator

import pytest
from live_brokers import LiveBrokers, live_brokers


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBrokers]:
    with live_brokers() as brokers:
        yield brokers
