import asyncio

from sklearn.linear_model import LogisticRegression

from covey.matcher import EventType
from covey.matcher.operators.score import score_operator
from covey.matcher.operators.table import register
from covey.overlay import Client

position = EventType(
    "Position", {"truck": "string", "lat": "float64", "lon": "float64", "speed": "float64", "load": "float64"}
)
drives = [[30, 5], [50, 20], [60, 8], [75, 30], [80, 12], [90, 25]]  # speed in km/h, load in tonnes
model = LogisticRegression().fit(drives, [0, 0, 0, 1, 1, 1])  # 1: could not stop in time
register(score_operator("risk", model, ["speed", "load"]))  # unknown to brokers, which pass events on

FENCE = "within(lat, lon, $lat, $lon, 500) and risk(speed, load, ?score) and ?score > 0.8"
TRUCKS = [("A", 52.50, 85, 30), ("B", 52.50, 40, 10), ("C", 52.52, 90, 20), ("D", 52.54, 55, 25)]


async def main() -> None:
    async with Client("localhost:7005", name="fleet") as fleet, Client("localhost:7001") as ambulance:
        await fleet.advertise(position)
        alerts = await ambulance.subscribe(position, FENCE, lat=0.0, lon=13.4)
        for lat in (52.50, 52.52):
            await alerts.update(lat=lat)  # the fence has moved with the ambulance, at all brokers
            for truck, at, speed, load in TRUCKS:
                await fleet.publish("Position", truck=truck, lat=at, lon=13.4, speed=speed, load=load)
            event = await anext(alerts)
            print(f"ambulance at {lat:.2f}: beware of truck {event['truck']} at {event['speed']:.0f} km/h")


asyncio.run(main())
