"""The strategies of the demonstration: thresholds and their moves."""

from covey.sim.experiments.demo.run import BUSY_DAYS, BUY_LOWER, MOVING_BAND, STRATEGIES


def test_the_strategies_move_on_what_they_want() -> None:
    quote = {"firm": "IBM", "price": 100.0, "volume": 10}
    assert BUY_LOWER.matches(quote, {"limit": 100.5})
    assert BUY_LOWER.move(quote, {"limit": 100.5}) == {"limit": 100.0}
    assert not BUY_LOWER.matches(quote, {"limit": 100.0})

    apple = quote | {"firm": "AAPL"}
    band = MOVING_BAND.move(apple, MOVING_BAND.start)
    assert band == {"low": 96.0, "high": 104.0}
    prices = (95.9, 96.0, 104.0, 104.1)
    assert [MOVING_BAND.matches(apple | {"price": p}, band) for p in prices] == [True, False, False, True]

    microsoft = quote | {"firm": "MSFT"}
    usual = {"usual": 1000.0}
    volumes = (700, 701, 800, 2000, 2001)
    assert [BUSY_DAYS.matches(microsoft | {"volume": v}, usual) for v in volumes] == [False, *[True] * 4]
    moved = [BUSY_DAYS.move(microsoft | {"volume": v}, usual)["usual"] for v in volumes[1:]]
    assert moved == [900.0, 1000.0, 1000.0, 1300.0]
    assert len({strategy.broker for strategy in STRATEGIES}) == 3
