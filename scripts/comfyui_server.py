"""A real ComfyUI without a window, for try_comfyui.py: starts it, sends graphs, and listens to it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import comfyui_browser

Graph = dict[str, Any]


class Refused(Exception):
    """The server did not take a graph, or a node failed; the text is what the user sees."""


class Interrupted(Exception):
    """The server was interrupted, so many seconds ago."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Run:
    """What the server said about a graph."""

    def __init__(self) -> None:
        self.progress: dict[str, list[tuple[int, int]]] = {}
        self.previews = 0
        self.pictures: list[Path] = []


class Server:
    """A running ComfyUI."""

    def __init__(self, session: aiohttp.ClientSession, base: Path, address: str) -> None:
        self.address = address
        self.base = base
        self._session = session

    async def get(self, path: str) -> Any:
        """The JSON of a path."""
        async with self._session.get(self.address + path) as answer:
            return await answer.json()

    async def interrupt(self) -> None:
        """Presses the button."""
        async with self._session.post(f"{self.address}/interrupt", json={}) as answer:
            answer.raise_for_status()

    async def run(self, graph: Graph, interrupt_at: "str | None" = None, within: float = 120) -> Run:
        """Runs a graph to its end.

        Args:
            graph: In the form of the API.
            interrupt_at: The node at whose first progress the server is interrupted.
            within: Seconds.
        """
        async with asyncio.timeout(within):
            return await self._run(graph, interrupt_at)

    async def _run(self, graph: Graph, interrupt_at: "str | None") -> Run:
        client = uuid.uuid4().hex
        pressed = 0.0
        made = Run()
        async with self._session.ws_connect(f"{self.address}/ws?clientId={client}", max_msg_size=0) as socket_:
            body = {"prompt": graph, "client_id": client}
            async with self._session.post(f"{self.address}/prompt", json=body) as answer:
                said = await answer.json()
                if answer.status != 200:
                    raise Refused(json.dumps(said))
            async for message in socket_:
                if message.type is aiohttp.WSMsgType.BINARY:
                    made.previews += 1
                    continue
                event = json.loads(message.data)
                data = event["data"]
                if event["type"] == "progress":
                    made.progress.setdefault(data["node"], []).append((data["value"], data["max"]))
                    if data["node"] == interrupt_at:
                        pressed = time.monotonic()
                        await self.interrupt()
                        interrupt_at = None
                elif event["type"] == "executed":
                    files = data["output"].get("images", [])
                    made.pictures += [self.base / file["type"] / file["subfolder"] / file["filename"] for file in files]
                elif event["type"] == "execution_error":
                    raise Refused(f"{data['exception_type']}: {data['exception_message']}")
                elif event["type"] == "execution_interrupted":
                    raise Interrupted(time.monotonic() - pressed)
                elif event["type"] == "execution_success":
                    return made
        raise AssertionError("the server closed the socket")

    async def refusal(self, graph: Graph) -> str:
        """What the user sees of a graph that must fail."""
        try:
            await self.run(graph)
        except Refused as error:
            return str(error)
        raise AssertionError(f"not refused: {json.dumps(graph)}")


def started(command: list[Any], log: Path) -> "subprocess.Popen[bytes]":
    """Starts a program, whose output goes into a file."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("w") as file:
        return subprocess.Popen([str(word) for word in command], stdout=file, stderr=file, env=environment)


@contextlib.asynccontextmanager
async def served(comfyui: Path, pack: Path, base: Path) -> AsyncIterator[Server]:
    """Starts ComfyUI without a window on a free port of this machine, and ends it."""
    for folder in ("custom_nodes", "input", "output", "temp", "user/default", "models/tileforge"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    (base / "custom_nodes/tileforge").symlink_to(pack)
    (base / "user/default/comfy.settings.json").write_text(json.dumps(comfyui_browser.SETTINGS))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, comfyui / "main.py", "--cpu", "--listen", "127.0.0.1", "--port", port]
    command += ["--base-directory", base, "--database-url", "sqlite:///:memory:", "--disable-api-nodes"]
    log = base / "server.log"
    server = started(command, log)
    try:
        async with aiohttp.ClientSession() as session:
            address = f"http://127.0.0.1:{port}"
            until = time.monotonic() + 300
            while True:
                if server.poll() is not None or time.monotonic() > until:
                    sys.exit(f"the server did not start\n{log.read_text()}")
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{address}/system_stats") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.5)
            yield Server(session, base, address)
    except BaseException:
        print(log.read_text()[-2500:], file=sys.stderr)
        raise
    finally:
        server.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        if server.poll() is None:
            server.kill()
            server.wait()
