"""ComfyUI's page in Chromium without a window: opens the example workflows there, for try_comfyui.py.

It speaks the protocol of the browser's developer tools: https://chromedevtools.github.io/devtools-protocol/
"""

import asyncio
import base64
import contextlib
import io
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

SIZE = (1280, 640)


class Page:
    """A page in the browser."""

    def __init__(self, tools: aiohttp.ClientWebSocketResponse) -> None:
        self._tools = tools
        self._sent = 0

    async def call(self, method: str, **parameters: Any) -> Any:
        """Calls a method of the protocol."""
        self._sent += 1
        await self._tools.send_json({"id": self._sent, "method": method, "params": parameters})
        async for message in self._tools:
            said = json.loads(message.data)
            if said.get("id") == self._sent:
                if "error" in said:
                    raise AssertionError(f"{method}: {said['error']}")
                return said["result"]
        raise AssertionError("the browser went away")

    async def value(self, script: str) -> Any:
        """The value of an expression of JavaScript, also of a promise."""
        said = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            raise AssertionError(f"{script}: {said['exceptionDetails']}")
        return said["result"].get("value")

    async def until(self, script: str, within: float = 90) -> None:
        """Waits until an expression is true."""
        async with asyncio.timeout(within):
            while not await self.value(script):
                await asyncio.sleep(0.2)


def started(address: str, profile: str) -> "subprocess.Popen[bytes]":
    """Starts Chromium, which writes the port of its tools into the folder of its profile."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise AssertionError("--screenshot needs Chromium")
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--user-data-dir={profile}", "--remote-debugging-port=0"]
    return subprocess.Popen([*command, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def opened(address: str) -> AsyncIterator[Page]:
    """Chromium with one page."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = started(address, profile)
        try:
            port_file = Path(profile) / "DevToolsActivePort"
            async with asyncio.timeout(60):
                while not port_file.exists() or not port_file.read_text().strip():
                    await asyncio.sleep(0.2)
            port = port_file.read_text().split()[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                    pages = [page for page in await answer.json() if page["type"] == "page"]
                async with session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as tools:
                    yield Page(tools)
        finally:
            browser.send_signal(signal.SIGTERM)
            browser.wait(20)


async def prompt_of(page: Page, workflow: Path) -> Any:
    """Opens a workflow, and gives the graph that the page would send."""
    await page.value(f"window.app.loadGraphData({workflow.read_text()}, true, false, '{workflow.stem}')")
    prompt = await page.value("window.app.graphToPrompt().then(made => JSON.stringify(made.output))")
    graph = json.loads(prompt)
    return {number: {key: node[key] for key in ("class_type", "inputs")} for number, node in graph.items()}


#: Settings of the page: without what covers the nodes, or says how fast this machine draws.
SETTINGS = {"Comfy.TutorialCompleted": True, "Comfy.Minimap.Visible": False, "Comfy.Graph.CanvasInfo": False}


async def check_workflows(server: Any, pack: Path, graphs: Path, screenshot: Path) -> None:
    """Compares the example workflows with the example graphs, and takes a picture of the one that enlarges."""
    async with opened(server.address) as page:
        size = {"width": SIZE[0], "height": SIZE[1]}
        await page.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)
        await page.until("Boolean(window.app?.graph && window.app.canvas && document.querySelector('canvas'))")
        await asyncio.sleep(3)
        for name in ("generate", "upscale"):
            found = await prompt_of(page, pack / f"example_workflows/{name}.json")
            expected = json.loads((graphs / f"comfyui_{name}.json").read_text())
            if found != expected:
                raise AssertionError(f"{name}: the workflow is\n{json.dumps(found)}\nthe graph\n{json.dumps(expected)}")
            print(f"ok: the workflow {name} is the graph of python/examples", flush=True)
        await page.value("window.app.queuePrompt(0)")
        await page.until("(window.app.graph.getNodeById(4).imgs || []).length > 0")
        await page.value("void Object.assign(window.app.canvas.ds, {scale: 0.95, offset: [60, 90]})")
        await page.value("window.app.canvas.setDirty(true, true)")
        # Messages go away by themselves.
        await asyncio.sleep(8)
        shot = await page.call("Page.captureScreenshot", format="png")
        with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
            image.convert("RGB").save(screenshot, quality=85)
        print(f"ok: the workflow ran in the page: {screenshot}", flush=True)
