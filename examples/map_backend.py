"""The backend of a live map: trackers post positions, browsers get those within their box, however it moves.

pip install '.[gateway]' fastapi; covey up examples/five.yaml,
then uvicorn --app-dir examples map_backend:app, then http://127.0.0.1:8000
"""

from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import Body, FastAPI, Request
from fastapi.responses import FileResponse

from covey import gateway
from covey.matcher import EventType
from covey.overlay import Client

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64", "y": "float64"}, key="id")
covey = gateway.application("localhost:7001")


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with covey.router.lifespan_context(covey), Client("localhost:7005") as app.state.trackers:
        await app.state.trackers.advertise(VEHICLE)
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/covey", covey)
app.get("/")(lambda: FileResponse(Path(__file__).with_suffix(".html")))


@app.post("/vehicles/{vehicle}", status_code=202)
async def move(request: Request, vehicle: str, x: float = Body(), y: float = Body()) -> None:
    await request.app.state.trackers.publish("Vehicle", id=vehicle, x=x, y=y)
