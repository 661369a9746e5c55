"""Prices below a threshold in the browser, while the threshold moves.

covey up examples/five.yaml, then uvicorn --app-dir examples prices:app, then http://127.0.0.1:8000
"""

import asyncio
import random
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse

from covey import gateway
from covey.overlay import Client

covey = gateway.application("localhost:7001")


async def publish(exchange: Client) -> None:
    while True:
        await exchange.publish("Quote", firm="IBM", price=random.uniform(0, 100), volume=100)
        await asyncio.sleep(0.1)


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with covey.router.lifespan_context(covey), Client("localhost:7005") as exchange:
        await exchange.advertise(await exchange.event_type("Quote"))
        publishing = asyncio.create_task(publish(exchange))
        yield
        publishing.cancel()


app = FastAPI(lifespan=lifespan)
app.mount("/covey", covey)
app.get("/")(lambda: FileResponse(Path(__file__).with_suffix(".html")))
