"""Threads, futures, cancelling, deadlines and callbacks."""

import asyncio
import concurrent.futures
import gc
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tileforge


@pytest.fixture(scope="module")
def large() -> np.ndarray:
    """A picture that takes long."""
    return np.full((4000, 4000), 100, np.uint8)


def test_threads_share_an_engine(upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    pictures = [np.roll(photo[:40, :40], number, 0) for number in range(8)]
    expected = [upscaler.upscale(picture) for picture in pictures]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        made = list(pool.map(upscaler.upscale, pictures * 4))
    assert all(np.array_equal(one, other) for one, other in zip(made, expected * 4, strict=True))


def test_the_lock_of_the_interpreter_is_free(upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    counted = 0
    is_over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not is_over.is_set():
            counted += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    begun = time.perf_counter()
    upscaler.upscale(np.tile(photo, (4, 4, 1)))
    took = time.perf_counter() - begun
    is_over.set()
    counter.join()
    assert counted > 20 * took


def test_futures(upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    expected = upscaler.upscale(photo)
    futures = [upscaler.submit_upscale(photo) for _ in range(5)]
    assert all(isinstance(future, tileforge.Future) for future in futures)
    assert concurrent.futures.wait(futures, timeout=60).not_done == set()
    assert all(np.array_equal(future.result(), expected) for future in futures)
    done, total = futures[0].progress
    assert done == total
    called: list[object] = []
    futures[0].add_done_callback(called.append)
    assert called == [futures[0]]
    assert next(concurrent.futures.as_completed(futures)) in futures
    assert not futures[0].cancel()
    # An error comes where the result is asked for.
    with pytest.raises(tileforge.InvalidInput):
        upscaler.submit_run({"image": np.zeros((1, 3, 7, 7, 7), np.float32)}).result()
    with pytest.raises(tileforge.InvalidInput):
        pickle.dumps(futures[0])


def test_futures_are_awaited(upscaler: tileforge.Engine, photo: np.ndarray, large: np.ndarray) -> None:
    expected = upscaler.upscale(photo)

    async def several() -> list[np.ndarray]:
        return list(await asyncio.gather(*(upscaler.submit_upscale(photo) for _ in range(5))))

    assert all(np.array_equal(made, expected) for made in asyncio.run(several()))

    async def cancelled() -> tileforge.Future[np.ndarray]:
        future = upscaler.submit_upscale(large)

        async def wait() -> np.ndarray:
            return await future

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(), 0.2)
        return future

    begun = time.perf_counter()
    assert asyncio.run(cancelled()).cancelled()
    assert time.perf_counter() - begun < 5


def test_requests_are_cancelled(upscaler: tileforge.Engine, large: np.ndarray) -> None:
    future = upscaler.submit_upscale(large)
    while future.progress[0] == 0:
        time.sleep(0.005)
    assert future.cancel() and future.cancelled() and future.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert concurrent.futures.wait([future], timeout=1).done
    with pytest.raises(tileforge.DeadlineExceeded) as raised:
        upscaler.upscale(large, timeout=0.2)
    assert isinstance(raised.value, TimeoutError)
    for timeout in (-1.0, float("nan"), float("-inf")):
        with pytest.raises(tileforge.InvalidInput, match="timeout"):
            upscaler.upscale(large[:20, :20], timeout=timeout)
    with pytest.raises(tileforge.DeadlineExceeded):
        upscaler.upscale(large, timeout=0)
    assert upscaler.upscale(large[:20, :20], timeout=1e300).shape == (80, 80)


def test_ctrl_c_cancels(upscaler: tileforge.Engine, large: np.ndarray) -> None:
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        upscaler.upscale(large)
    assert time.perf_counter() - begun < 5
    timer.join()
    assert upscaler.upscale(large[:20, :20]).shape == (80, 80)


def test_what_callbacks_raise_reaches_the_caller(
    upscaler: tileforge.Engine, engines: Path, large: np.ndarray
) -> None:
    calls: list[tuple[int, int]] = []

    def fails(done: int, total: int) -> None:
        calls.append((done, total))
        if done > 0:
            raise LookupError("no more")

    begun = time.perf_counter()
    with pytest.raises(LookupError, match="no more"):
        upscaler.upscale(large, on_progress=fails)
    assert time.perf_counter() - begun < 20 and calls[-1][0] < calls[-1][1]
    calls.clear()
    upscaler.upscale(large[:200, :200], on_progress=lambda *call: calls.append(call))
    assert calls[-1][0] == calls[-1][1] and calls == sorted(calls)

    def stops(step: tileforge.Step) -> None:
        raise SystemExit(step.done)

    with pytest.raises(SystemExit):
        tileforge.open(engines / "sd").generate("a fox", steps=4, on_step=stops)


def test_a_preview_that_comes_early_is_that_of_its_step() -> None:
    from tileforge._engine import _StepReport

    class Request:
        """The network goes on between the look at how far it is and that at its previews."""

        def __init__(self) -> None:
            self.made = [(step, (np.full(3, step, np.uint8), 1, 1, 3)) for step in (1, 2)]

        def previews(self) -> list[object]:
            made, self.made = self.made, []
            return list(made)

    steps: list[tileforge.Step] = []
    report = _StepReport(Request(), steps.append)  # type: ignore[arg-type]
    report(1, 3)
    report(3, 3)
    shown = [None if step.picture is None else step.picture.tolist() for step in steps]
    assert shown == [[[[1, 1, 1]]], [[[2, 2, 2]]], None]


def test_previews_of_a_future(engines: Path) -> None:
    pipeline = tileforge.open(engines / "sd")
    future = pipeline.submit_generate("a fox", steps=4, preview_every=2)
    (made,) = future.result()
    previews = future.previews()
    assert [done for done, _ in previews] == [2, 4]
    assert all(picture.shape == made.shape and picture.dtype == np.uint8 for _, picture in previews)
    assert future.previews() == [] and pipeline.submit_generate("a fox", steps=2).previews() == []


def test_a_full_queue_is_said(engines: Path, large: np.ndarray) -> None:
    engine = tileforge.open(engines / "upscale", waiting=1)
    futures = []
    with pytest.raises(tileforge.Busy):
        for _ in range(50):
            futures.append(engine.submit_upscale(large, wait=False))
    with pytest.raises(tileforge.DeadlineExceeded):
        engine.submit_upscale(large, timeout=0.2)
    small = threading.Timer(0.3, lambda: [future.cancel() for future in futures])
    small.start()
    # It waits for room.
    assert engine.upscale(large[:8, :8]).shape == (32, 32)
    small.join()


def test_an_engine_that_is_dropped_finishes_its_requests(engines: Path, photo: np.ndarray) -> None:
    engine = tileforge.open(engines / "upscale")
    expected = engine.upscale(photo)
    future = engine.submit_upscale(photo)
    stream = engine.frames(iter([photo, photo]))
    next(stream)
    del engine
    gc.collect()
    assert np.array_equal(future.result(), expected)
    assert np.array_equal(next(stream), expected)


def test_a_buffer_that_changes_meanwhile(upscaler: tileforge.Engine, photo: np.ndarray) -> None:
    expected = upscaler.upscale(photo)
    changing = photo.copy()
    future = upscaler.submit_upscale(changing)
    changing[:] = 0
    assert np.array_equal(future.result(), expected)
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            changing[:] = np.random.default_rng().integers(0, 256, changing.shape, np.uint8)

    changer = threading.Thread(target=change)
    changer.start()
    for _ in range(3):
        assert upscaler.upscale(changing[:32, :32]).shape == (128, 128, 3)
    is_over.set()
    changer.join()


def test_engines_are_pickled_by_their_source(engines: Path, photo: np.ndarray, tmp_path: Path) -> None:
    engine = tileforge.open(engines / "upscale", threads=1, provider="cpu")
    expected = engine.upscale(photo)
    copy = pickle.loads(pickle.dumps(engine))
    assert copy is pickle.loads(pickle.dumps(engine)) and repr(copy) == repr(engine)
    assert np.array_equal(copy.upscale(photo), expected)


def test_engines_of_archives_are_pickled(engines: Path, photo: np.ndarray, tmp_path: Path) -> None:
    from tileforge._programs import _run

    archive, cache = tmp_path / "engine.tar", tmp_path / "cache"
    _run("engine-builder", ["pack", engines / "upscale", "-o", archive])
    engine = tileforge.open(archive, cache=cache)
    expected = engine.upscale(photo)
    assert len(list((cache / "archives").iterdir())) == 1
    pickled = pickle.dumps(engine)
    del engine
    gc.collect()
    assert np.array_equal(pickle.loads(pickled).upscale(photo), expected)
    archive.unlink()
    gc.collect()
    with pytest.raises(tileforge.InvalidInput):
        pickle.loads(pickled)


def test_memory_is_given_back(upscaler: tileforge.Engine, engines: Path) -> None:
    picture = np.zeros((16, 16, 3), np.uint8)
    # A network that takes no time, for what a call costs beside it.
    texts = tileforge.open(engines / "sd", part="text_encoder")
    name, _, shape = texts.ports()[0][0]
    tokens = {name: np.zeros([length or 1 for length in shape], np.int64)}

    def held() -> int:
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def send(count: int) -> None:
        for number in range(count):
            texts.run(tokens)
            if number % 4 == 0:
                texts.submit_run(tokens).result()
            if number % 100 == 0:
                upscaler.upscale(picture)
            if number % 50 == 0:
                with pytest.raises(tileforge.InvalidInput):
                    upscaler.upscale(picture[:0])
                with pytest.raises(concurrent.futures.CancelledError):
                    future = upscaler.submit_upscale(np.zeros((400, 400), np.uint8))
                    future.cancel()
                    future.result()

    send(1000)
    before, objects = held(), len(gc.get_objects())
    send(8000)
    # 2 KiB that each of 10,000 calls left would be 20 MB.
    assert held() - before < 20_000
    assert len(gc.get_objects()) - objects < 200


def test_engines_are_closed(engines: Path, photo: np.ndarray) -> None:
    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    for _ in range(3):
        tileforge.open(engines / "upscale").upscale(photo[:16, :16])
    gc.collect()
    time.sleep(0.5)
    before = threads()
    for _ in range(10):
        tileforge.open(engines / "upscale").upscale(photo[:16, :16])
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() > before + 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threads() <= before + 4


Script = Callable[..., str]

OPEN = "import sys, tileforge, numpy as np\nengine = tileforge.open(sys.argv[1])\n"
LARGE = "large = np.zeros((4000, 4000), np.uint8)\n"


def test_the_interpreter_ends_while_requests_run(script: Script, engines: Path) -> None:
    for ending in [
        "future = engine.submit_upscale(large)",
        "futures = [engine.submit_upscale(large) for _ in range(20)]",
        "engine.submit_upscale(large).add_done_callback(print)",
        "stream = engine.frames([large] * 3)\nimport threading\n"
        "threading.Thread(target=next, args=[stream], daemon=True).start()",
        "import threading\nthreading.Thread(target=engine.upscale, args=[large], daemon=True).start()",
        "future = engine.submit_upscale(large)\ndel engine",
    ]:
        script(OPEN + LARGE + ending + "\nimport time; time.sleep(0.3)", engines / "upscale", timeout=60)
    script(OPEN + "stream = engine.frames([np.zeros((32, 32, 3), np.uint8)] * 9)\nnext(stream)", engines / "realtime")
    # After the end, requests are refused.
    late = "import atexit\nfrom tileforge import _native\n_native.shutdown()\n"
    late += "try: engine.upscale(large)\nexcept tileforge.Failed as error: print(error)"
    assert "ending" in script(OPEN + LARGE + late, engines / "upscale")


def test_forks_are_told_apart(script: Script, engines: Path) -> None:
    fork = """
import os, gc
def child(act):
    process = os.fork()
    if process == 0:
        try:
            act()
            os._exit(0)
        except tileforge.Failed as error:
            os._exit(7 if "fork" in str(error) else 8)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
"""
    small = "small = np.zeros((16, 16), np.uint8)\n"
    used = OPEN + small + fork + """
future = engine.submit_upscale(small)
engine.upscale(small)
assert child(lambda: engine.upscale(small)) == 7
assert child(lambda: engine.info) == 7
assert child(lambda: future._request.take()) == 7
assert child(lambda: tileforge.open(sys.argv[1])) == 7
assert child(lambda: list(engine.frames([small]))) == 7
def forget():
    global engine, future
    del engine, future
    gc.collect()
assert child(forget) == 0
# A child that ends as interpreters do.
process = os.fork()
if process == 0:
    del engine
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
assert engine.upscale(small).shape == (64, 64)
"""
    script(used, engines / "upscale", timeout=60)
    unused = "import sys, tileforge, numpy as np\nsmall = np.zeros((16, 16), np.uint8)\n" + fork
    unused += "assert child(lambda: tileforge.open(sys.argv[1]).upscale(small)) == 0\n"
    unused += "tileforge.open(sys.argv[1]).upscale(small)\n"
    script(unused, engines / "upscale", timeout=60)


def test_processes_are_spawned(engines: Path, photo: np.ndarray, upscaler: tileforge.Engine) -> None:
    import multiprocessing

    expected = upscaler.upscale(photo)
    with concurrent.futures.ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        made = list(pool.map(upscaler.upscale, [photo, photo]))
    assert all(np.array_equal(one, expected) for one in made)
