"""The backend of a live map: trackers post positions, browsers get those within their box, however it moves.

pip install '.[gateway]' fastapi; covey up examples/five.yaml, then uvicorn --app-dir examples map_backend:app
"""

from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from pydantic import BaseModel

from covey import gateway
from covey.matcher import EventType
from covey.overlay import Client

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64", "y": "float64"}, key="id")
covey = gateway.application("localhost:7001")


class Position(BaseModel):
    x: float
    y: float


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with covey.router.lifespan_context(covey), Client("localhost:7005") as app.state.trackers:
        await app.state.trackers.advertise(VEHICLE)
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/covey", covey)


@app.post("/vehicles/{vehicle}", status_code=202)
async def move(vehicle: str, position: Position, request: Request) -> None:
    await request.app.state.trackers.publish("Vehicle", id=vehicle, x=position.x, y=position.y)
