"""The graph behind FastAPI and uvicorn: runs are on threads, so that the event loop stays free."""

import network
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool

app = FastAPI()


@app.post("/tensor")
async def tensor(request: Request) -> Response:
    output = await run_in_threadpool(network.tensor, await request.body())
    return Response(output, media_type="application/octet-stream")


@app.post("/picture")
async def picture(request: Request) -> Response:
    output = await run_in_threadpool(network.picture, await request.body())
    return Response(output, media_type="image/png")


if __name__ == "__main__":
    network.opened()
    uvicorn.run(app, port=network.PORT, log_level="warning")
