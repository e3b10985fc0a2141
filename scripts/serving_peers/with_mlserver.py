"""The graph behind MLServer: handlers of its own paths, which take and give bytes.

Its paths of the Open Inference Protocol take tensors as JSON over HTTP, which is slower. It runs in the server's own
process, on threads: the pool of processes that MLServer has by default would add to each request.
"""

import asyncio

import network
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.handlers import custom_handler
from starlette.requests import Request
from starlette.responses import Response


class Served(MLModel):
    async def load(self) -> bool:
        network.opened()
        return True

    @custom_handler(rest_path="/tensor")
    async def tensor(self, request: Request) -> Response:
        output = await asyncio.to_thread(network.tensor, await request.body())
        return Response(output, media_type="application/octet-stream")

    @custom_handler(rest_path="/picture")
    async def picture(self, request: Request) -> Response:
        output = await asyncio.to_thread(network.picture, await request.body())
        return Response(output, media_type="image/png")


async def serve() -> None:
    ports = {"http_port": network.PORT, "grpc_port": network.PORT + 1}
    server = MLServer(Settings(host="127.0.0.1", **ports, metrics_endpoint=None, parallel_workers=0, debug=False))
    await server.start([ModelSettings(name="compact", implementation="with_mlserver.Served")])


if __name__ == "__main__":
    asyncio.run(serve())
