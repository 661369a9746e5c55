"""Simulated clients that do not read, or publish what they read."""

from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse

PING = EventType("Ping", {"number": "int64"})
PONG = EventType("Pong", {"number": "int64"})


def overlay_of(**link: int) -> JudgedOverlay:
    overlay = JudgedOverlay(engine="naive", link=link)
    overlay.build(2)
    return overlay


def test_a_client_that_stops_reading_gets_its_events_when_it_reads_again() -> None:
    overlay = overlay_of(window_bytes=500)
    feed, reader = overlay.client("feed", "b1"), overlay.client("reader", "b2")
    feed.advertise(PING)
    reader.subscribe(parse("number >= 0", PING))
    overlay.run(1)
    reader.stop_reading()
    for number in range(50):
        publish(feed, PING, number)
        overlay.run(0.01)
    assert not overlay.delivered.rows
    queue = overlay.simulation.brokers["broker/b2"].endpoint.queues["client/reader"]
    assert queue.inspect()["queued_events"] > 0
    reader.resume_reading()
    overlay.run(1)
    assert overlay.delivered.values() == [*range(50)]


def test_a_client_publishes_what_it_reads_one_at_a_time_where_its_outbox_is_small() -> None:
    overlay = overlay_of()
    feed = overlay.client("feed", "b1")
    echo = overlay.client("echo", "b2", outbox_events=1)
    feed.advertise(PING)
    echo.advertise(PONG)
    echo.republishes = PONG
    echo.subscribe(parse("number >= 0", PING))
    feed.subscribe(parse("number >= 0", PONG))
    overlay.run(1)
    for number in range(30):
        publish(feed, PING, number)
    overlay.run(10)
    for name in ("client/echo", "client/feed"):
        assert overlay.delivered.values(name) == [*range(30)]
