"""The graph behind LitServe, whose network has a process of its own for each path."""

import sys
from typing import Annotated

import litserve
import network
from fastapi import Body, Response


class Served(litserve.LitAPI):
    def setup(self, device) -> None:
        network.opened()
        self.compute = {"/tensor": network.tensor, "/picture": network.picture}[self.api_path]

    def decode_request(self, request: Annotated[bytes, Body(media_type="application/octet-stream")]) -> bytes:
        return request

    def predict(self, body: bytes) -> bytes:
        return self.compute(body)

    def encode_response(self, output: bytes) -> Response:
        return Response(output, media_type="application/octet-stream")


if __name__ == "__main__":
    served = Served(api_path=sys.argv[1])
    server = litserve.LitServer(served, accelerator="cpu", timeout=60, fast_queue=True)
    server.run(host="127.0.0.1", port=network.PORT, generate_client_file=False, log_level="warning")
