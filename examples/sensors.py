"""Sensors publish by MQTT; each reading above the last alarm is an alarm, and goes back to MQTT.

mosquitto, covey up examples/five.yaml, covey bridge mqtt examples/sensors.yaml; then this
"""

import asyncio
import json

import aiomqtt

from covey.matcher import EventType
from covey.overlay import Client, Subscription

alarm = EventType("Alarm", {"sensor": "string", "celsius": "float64"})
READINGS = [("oven", 75.0), ("oven", 85.0), ("press", 82.0), ("press", 90.0)]


async def watch(client: Client, hot: Subscription) -> None:
    async for reading in hot:
        await client.publish("Alarm", sensor=reading["sensor"], celsius=reading["celsius"])
        await hot.update(limit=reading["celsius"])  # the subscription moves, at all brokers


async def main() -> None:
    async with Client("localhost:7004") as client, aiomqtt.Client("localhost", 1883) as plant:
        await client.advertise(alarm)
        await plant.subscribe("alarms/+", qos=1)
        hot = await client.subscribe("Reading", "celsius > $limit", limit=80)
        watching = asyncio.create_task(watch(client, hot))
        for sensor, celsius in READINGS:
            await plant.publish(f"plant/{sensor}/temperature", json.dumps({"celsius": celsius}), qos=1)
        async for message in plant.messages:
            print(message.topic, message.payload.decode())
            if json.loads(message.payload)["celsius"] == 90.0:
                break
        watching.cancel()


asyncio.run(main())
