"""An opened engine."""

import atexit
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from tileforge import _arrays, _native
from tileforge._errors import Busy, DeadlineExceeded, InvalidInput

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from tileforge._future import Future

    Picture = TypeVar("Picture", NDArray[np.uint8], NDArray[np.uint16], NDArray[np.float32], Image)
    AnyPicture = NDArray[np.uint8] | NDArray[np.uint16] | NDArray[np.float32] | Image

Result = TypeVar("Result")

# Seconds between two looks at signals, progress and previews while a request runs.
_LOOK = 0.05
_LOOK_WITH_PROGRESS = 0.01
# Seconds between two tries where the queue is full.
_TRY_AGAIN = 0.005

# Ends computing threads before their libraries are unloaded.
atexit.register(_native.shutdown)


@dataclass(frozen=True)
class Step:
    """A finished evaluation of the network. Some schedulers, such as PNDM, have more evaluations than steps."""

    #: Evaluations that are done, from 1.
    done: int
    #: All evaluations.
    total: int
    #: The first picture as the network sees it at that point, `[height, width, 3]`, if previews are requested.
    picture: "NDArray[np.uint8] | None" = None


@dataclass(frozen=True)
class Info:
    """What an engine is, and how it runs on this machine."""

    #: Its name.
    name: str
    #: What it is for: `"upscale"`, `"depth"`, `"realtime"`, `"vae_encoder"`, `"vae_decoder"`, `"unet"`,
    #: `"transformer"`, `"text_encoder"` or `"tensors"`; `"restore"` for a pipeline that restores pictures and films;
    #: `None` for other pipelines.
    task: str | None
    #: The architecture of its network; `None` for a pipeline.
    architecture: str | None
    #: How many times as wide and as high its pictures become; `None` where it does not enlarge.
    scale: int | None
    #: The precision of most of its weights; `None` for a pipeline, whose parts have one each.
    precision: str | None
    #: Width and height of the pictures that a pipeline makes, or of the tiles that a network takes; without those that
    #: requests choose.
    sizes: list[tuple[int, int]]
    #: The names of its parts; empty for one network.
    parts: list[str]
    #: What it was built for; `None` for a pipeline.
    profile: str | None
    #: The provider that it runs on here, `None` where none can run it. Of a pipeline, that of its first part.
    provider: str | None
    #: How it fits this machine, and why not better: a line for each part.
    verdict: str
    #: `"metres"`, or `"relative_inverse"`: larger is nearer, with a scale and a shift of each picture. `None` for other
    #: tasks than depth.
    depth: str | None
    #: The whole manifest, as docs/engine-format.md describes it.
    manifest: dict[str, Any]


class Engine:
    """An engine on this machine: open one with `tileforge.open`.

    It can be used from any number of threads: what they send runs together where that changes no byte. The
    interpreter's lock is free meanwhile, and Ctrl-C cancels.

    Methods that wait take `timeout`, the seconds after which the request ends with `DeadlineExceeded`. Methods that
    begin with `submit` return a `Future` at once, unless the queue is full: then they wait for room, or raise `Busy` if
    `wait` is false.
    """

    def __init__(self, native: "_native.Engine", source: str, pickled: tuple[Callable[..., "Engine"], tuple[Any, ...]]):
        self._native = native
        self._source = source
        self._pickled = pickled

    def __repr__(self) -> str:
        return f"<tileforge.Engine {self._source!r}>"

    def __reduce__(self) -> Any:
        return self._pickled

    @property
    def info(self) -> Info:
        """What it is, and how it runs on this machine."""
        manifest = json.loads(self._native.manifest())
        task = self._native.task()
        verdicts = self._native.verdicts()
        is_network = "parts" not in manifest
        sizes = _sizes(manifest) if is_network else self._pipeline_sizes(manifest)
        return Info(
            name=self._native.name(),
            task=task,
            architecture=manifest["model"]["architecture"] if is_network else None,
            scale=_scale(manifest) if task == "upscale" else None,
            precision=manifest["precision"] if is_network else None,
            sizes=sizes,
            parts=[] if is_network else list(manifest["parts"]),
            profile=manifest["target"]["profile"] if is_network else None,
            provider=verdicts[0][2] if verdicts else None,
            verdict="\n".join(text if part is None else f"{part}: {text}" for part, text, _ in verdicts),
            depth=_depth_kind(manifest) if task == "depth" else None,
            manifest=manifest,
        )

    def _pipeline_sizes(self, manifest: dict[str, Any]) -> list[tuple[int, int]]:
        # An autoencoder of several parts makes pictures of latents, of any size.
        return self._native.sizes() if manifest.get("diffusion") else []

    def upscale(
        self,
        picture: "Picture",
        *,
        timeout: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> "Picture":
        """Enlarges a picture, or restores it, as the engine does.

        Args:
            picture: `[height, width]` or `[height, width, channels]` of `uint8`, `uint16` or `float32` from 0 to 1,
                with any strides; 1 to 4 channels: grey, grey and alpha, RGB, RGBA. Or an image of Pillow, of mode L,
                LA, RGB, RGBA or I;16. At most 1 GiB.
            timeout: Seconds.
            on_progress: Called with the tiles that are done and all tiles. If it raises, the request is cancelled, and
                what it raised is raised here.

        Returns:
            The picture, of the same kind: `[height · scale, width · scale, …]`.

        Raises:
            InvalidInput: The engine is for another task; the picture has another type or shape, or NaN.
            DoesNotFit: The engine does not fit this machine, or the picture its memory.
            DeadlineExceeded: The time was over.
            Failed: The network failed.
        """
        given, back = _arrays.picture(picture)
        request = _submitted(lambda left: self._native.upscale(given, left), timeout, True)

        def report(done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(done, total)

        result: "Picture" = back(_finished(request, report if on_progress else None))
        return result

    def submit_upscale(
        self, picture: "Picture", *, timeout: float | None = None, wait: bool = True
    ) -> "Future[Picture]":
        """As `upscale`, without waiting for the result.

        Raises:
            Busy: The queue is full, and `wait` is false.
        """
        given, back = _arrays.picture(picture)
        return _future(_submitted(lambda left: self._native.upscale(given, left), timeout, wait), back)

    def inpaint(self, picture: "Picture", mask: "AnyPicture", *, timeout: float | None = None) -> "Picture":
        """Fills in a picture where a mask is white.

        Args:
            picture: As for `upscale`.
            mask: A picture of the same size. Levels from half of white on count as white.
            timeout: Seconds.

        Returns:
            The picture, of the same kind. All pixels outside the mask, and alpha, are those that were given.

        Raises:
            InvalidInput: As `upscale`; the mask has another size.
        """
        given, back = _arrays.picture(picture)
        request = self._inpaint(given, mask, timeout, True)
        result: "Picture" = back(_finished(request, None))
        return result

    def submit_inpaint(
        self, picture: "Picture", mask: "AnyPicture", *, timeout: float | None = None, wait: bool = True
    ) -> "Future[Picture]":
        """As `inpaint`, without waiting for the result."""
        given, back = _arrays.picture(picture)
        return _future(self._inpaint(given, mask, timeout, wait), back)

    def _inpaint(self, given: "_native.Picture", mask: object, timeout: float | None, wait: bool) -> "_native.Request":
        given_mask, _ = _arrays.picture(mask, "mask")
        return _submitted(lambda left: self._native.inpaint(given, given_mask, left), timeout, wait)

    def depth(
        self,
        picture: "AnyPicture",
        *,
        sensor: "NDArray[np.float32] | None" = None,
        timeout: float | None = None,
    ) -> "NDArray[np.float32]":
        """The depth of each pixel of a picture.

        Args:
            picture: As for `upscale`.
            sensor: The map of a sensor in metres, `[height, width]`, 0 where it has none; for networks that refine one.
            timeout: Seconds.

        Returns:
            `[height, width]`, those of the picture: metres, 0 where there is no depth; or, where `info.depth` is
            `"relative_inverse"`, numbers that are larger where it is nearer.

        Raises:
            InvalidInput: As `upscale`; there is a map where the network takes none, or none where it takes one.
        """
        request = self._depth(picture, sensor, timeout, True)
        return _depth_array(_finished(request, None))

    def submit_depth(
        self,
        picture: "AnyPicture",
        *,
        sensor: "NDArray[np.float32] | None" = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[NDArray[np.float32]]":
        """As `depth`, without waiting for the result."""
        return _future(self._depth(picture, sensor, timeout, wait), _depth_array)

    def _depth(self, picture: object, sensor: object, timeout: float | None, wait: bool) -> "_native.Request":
        given, _ = _arrays.picture(picture)
        given_map = None if sensor is None else _arrays.depth_map(sensor)
        return _submitted(lambda left: self._native.depth(given, given_map, left), timeout, wait)

    def generate(
        self,
        prompt: str,
        *,
        negative_prompt: str | None = None,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        size: tuple[int, int] | None = None,
        scheduler: str | None = None,
        image: "AnyPicture | None" = None,
        mask: "AnyPicture | None" = None,
        strength: float | None = None,
        settings: Mapping[str, Any] | None = None,
        preview_every: int | None = None,
        on_step: Callable[[Step], object] | None = None,
        timeout: float | None = None,
    ) -> "NDArray[np.uint8]":
        """Makes a picture from a text. Arguments that are not given have diffusers' defaults.

        Args:
            prompt: What is to be seen.
            negative_prompt: What is not to be seen.
            seed: Of the random numbers, 0 to 2⁶⁴ − 1: those of PyTorch on the CPU.
            steps: From noise to the picture; 50 by default.
            guidance: How much the text counts, 0 to 1000.
            size: Width and height, one of `info.sizes`; by default the largest, or that of `image`.
            scheduler: Its class in diffusers, or a sampler's name in other programs, such as `"euler_a"`.
            image: The picture to start from, as for `upscale`.
            mask: Its white part is made anew, and nothing else: a picture of the size of `image`.
            strength: How far `image` is changed, 0 to 1.
            settings: Other settings by name, as in the record that `runtime generate` writes: `eta`, `long_prompt`, …
            preview_every: Evaluations between two previews, which `on_step` gets. Each costs one run of the decoder.
            on_step: Called with each `Step` that is done, in their order. If it raises, the request is cancelled, and
                what it raised is raised here.
            timeout: Seconds.

        Returns:
            `[height, width, 3]`

        Raises:
            InvalidInput: The settings do not go together, or not with this pipeline; a setting is not known.
            DoesNotFit: The pipeline does not fit this machine.
        """
        wanted = _settings(negative_prompt, seed, steps, guidance, size, scheduler, strength, settings)
        if wanted.get("count", 1) != 1:
            raise InvalidInput("settings: generate makes one picture; generate_several makes several")
        request = self._generate(prompt, wanted, image, mask, preview_every, timeout, True)
        report = None if on_step is None else _StepReport(request, on_step)
        pictures, _, _ = _finished(request, report)
        return _arrays.shaped(pictures[0])

    def generate_several(
        self, prompt: str, count: int, *, timeout: float | None = None, **settings: Any
    ) -> "list[NDArray[np.uint8]]":
        """Makes several pictures together, from one seed.

        Args:
            prompt: What is to be seen.
            count: How many, 1 to 1024.
            timeout: Seconds.
            settings: As for `generate`, but `preview_every` and `on_step`.

        Returns:
            Arrays `[height, width, 3]`.
        """
        future = self.submit_generate(prompt, count=count, timeout=timeout, **settings)
        try:
            return future.result()
        except BaseException:
            # Where it has failed already, this does nothing.
            future.cancel()
            raise

    def submit_generate(
        self,
        prompt: str,
        *,
        count: int = 1,
        negative_prompt: str | None = None,
        seed: int = 0,
        steps: int | None = None,
        guidance: float | None = None,
        size: tuple[int, int] | None = None,
        scheduler: str | None = None,
        image: "AnyPicture | None" = None,
        mask: "AnyPicture | None" = None,
        strength: float | None = None,
        settings: Mapping[str, Any] | None = None,
        preview_every: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[list[NDArray[np.uint8]]]":
        """As `generate`, without waiting for the result, which is a list of `count` pictures. `Future.previews` gives
        the previews.
        """
        wanted = _settings(negative_prompt, seed, steps, guidance, size, scheduler, strength, settings)
        wanted["count"] = count
        request = self._generate(prompt, wanted, image, mask, preview_every, timeout, wait)
        return _future(request, lambda made: [_arrays.shaped(picture) for picture in made[0]])

    def _generate(
        self,
        prompt: str,
        wanted: dict[str, Any],
        image: object,
        mask: object,
        preview_every: int | None,
        timeout: float | None,
        wait: bool,
    ) -> "_native.Request":
        try:
            text = json.dumps(wanted, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"settings: {error}") from error
        if preview_every is not None and preview_every < 1:
            raise InvalidInput(f"preview_every: expected at least 1, found {preview_every}")
        given = None if image is None else _arrays.picture(image, "image")[0]
        given_mask = None if mask is None else _arrays.picture(mask, "mask")[0]

        def send(left: float | None) -> "_native.Request":
            return self._native.generate(prompt, text, given, given_mask, preview_every, left)

        return _submitted(send, timeout, wait)

    def run(
        self, inputs: Mapping[str, Any], *, timeout: float | None = None
    ) -> "dict[str, NDArray[Any]]":
        """Sends tensors by name through an engine of one network, whatever it is for.

        Args:
            inputs: Arrays, or anything with `__dlpack__` in this machine's memory, such as tensors of PyTorch. `inputs`
                and `outputs` of `ports` say which. Where they have an axis of samples, there may be any number of them.
            timeout: Seconds.

        Returns:
            Arrays, which other libraries take without a copy by `__dlpack__`.

        Raises:
            InvalidInput: An input is missing, or has a type or shape that the engine has no graph for; the engine has
                several parts.
        """
        return _tensors(_finished(self._run(inputs, timeout, True), None))

    def submit_run(
        self, inputs: Mapping[str, Any], *, timeout: float | None = None, wait: bool = True
    ) -> "Future[dict[str, NDArray[Any]]]":
        """As `run`, without waiting for the result."""
        return _future(self._run(inputs, timeout, wait), _tensors)

    def _run(self, inputs: Mapping[str, Any], timeout: float | None, wait: bool) -> "_native.Request":
        if not isinstance(inputs, Mapping):
            raise InvalidInput(f"expected tensors by name, found {type(inputs).__name__}")
        given = [_arrays.tensor(name, value) for name, value in inputs.items()]
        return _submitted(lambda left: self._native.run(given, left), timeout, wait)

    def ports(self) -> "tuple[list[_native.Port], list[_native.Port]]":
        """The inputs and the outputs of an engine of one network: name, element type and lengths, `None` where requests
        choose a length.

        Raises:
            InvalidInput: The engine has several parts.
        """
        return self._native.ports()

    def encode(self, picture: "AnyPicture | Sequence[AnyPicture]", *, timeout: float | None = None) -> "NDArray[Any]":
        """The likeliest latent of a picture or a clip.

        Args:
            picture: As for `upscale`; a list or tuple of frames of one size for engines that take clips.
            timeout: Seconds.

        Returns:
            `[channels, height, width]` of `float32`; for a clip `[channels, frames, height, width]`.

        Raises:
            InvalidInput: The engine has no encoder; it takes clips and a picture was given, or the other way round.
        """
        return _arrays.latent_array(_finished(self._encode(picture, timeout, True), None))

    def submit_encode(
        self, picture: "AnyPicture | Sequence[AnyPicture]", *, timeout: float | None = None, wait: bool = True
    ) -> "Future[NDArray[Any]]":
        """As `encode`, without waiting for the result."""
        return _future(self._encode(picture, timeout, wait), _arrays.latent_array)

    def _encode(self, picture: object, timeout: float | None, wait: bool) -> "_native.Request":
        frames = list(picture) if isinstance(picture, (list, tuple)) else [picture]
        given = [_arrays.picture(frame)[0] for frame in frames]
        return _submitted(lambda left: self._native.encode(given, left), timeout, wait)

    def decode(
        self,
        latent: "NDArray[np.float32]",
        *,
        size: tuple[int, int] | None = None,
        frames: int | None = None,
        timeout: float | None = None,
    ) -> "NDArray[np.uint8] | list[NDArray[np.uint8]]":
        """The picture of a latent, or the frames of a clip's.

        Args:
            latent: As `encode` returns it.
            size: Width and height of the picture that was encoded, if they are no multiples of the latent's: what the
                encoder added is cut off.
            frames: Frames of the clip that was encoded, in the same way.
            timeout: Seconds.

        Returns:
            `[height, width, 3]`; for a latent with frames a list of these.

        Raises:
            InvalidInput: The engine has no decoder; the latent has other channels, or is not finite.
        """
        made: NDArray[np.uint8] | list[NDArray[np.uint8]]
        made = _decoded(latent)(_finished(self._decode(latent, size, frames, timeout, True), None))
        return made

    def submit_decode(
        self,
        latent: "NDArray[np.float32]",
        *,
        size: tuple[int, int] | None = None,
        frames: int | None = None,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[NDArray[np.uint8] | list[NDArray[np.uint8]]]":
        """As `decode`, without waiting for the result."""
        return _future(self._decode(latent, size, frames, timeout, wait), _decoded(latent))

    def _decode(
        self, latent: object, size: tuple[int, int] | None, frames: int | None, timeout: float | None, wait: bool
    ) -> "_native.Request":
        given = _arrays.latent(latent, size, frames)
        return _submitted(lambda left: self._native.decode(given, left), timeout, wait)

    @overload
    def restore(
        self,
        picture: "Picture",
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> "Picture": ...

    @overload
    def restore(
        self,
        picture: "list[Picture] | tuple[Picture, ...]",
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> "list[Picture]": ...

    def restore(
        self,
        picture: Any,
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> Any:
        """Restores a picture, or the frames of a film.

        Args:
            picture: As for `upscale`. For a film an array `[frames, height, width, channels]`, or a list or tuple of
                pictures of one size.
            size: The length of the shorter side of the result, or its width and height; by default the largest that the
                engine takes in the proportions of the picture.
            seed: Of the noise that each batch of frames begins with, 0 to 2⁶⁴ − 1: that of PyTorch on the CPU; 42 by
                default.
            noise: The noise itself, `[channels, frames, height, width]` of latent frames, instead of a seed.
            colour: How the result gets the colours of the picture: `"lab"`, `"wavelet"`, `"wavelet-adaptive"`, `"hsv"`,
                `"adain"` or `"none"`.
            frame_overlap: Frames that each batch shares with the one before it, where both blend: fewer than the engine
                takes together.
            timeout: Seconds.
            on_progress: Called with the frames that are done and all frames. If it raises, the request is cancelled,
                and what it raised is raised here.

        Returns:
            The picture, of the same kind; for a film an array, or a list of pictures. Alpha is left out, and sides have
            even lengths. All results together have at most 4 GiB.

        Raises:
            InvalidInput: The engine does not restore, or has no graph for the size; frames have sizes that differ; the
                noise has another shape.
            DoesNotFit: The engine does not fit this machine.
        """
        given, back = _arrays.frames(picture)
        request = self._restore(given, size, seed, noise, colour, frame_overlap, timeout, True)
        return back(_finished(request, on_progress))

    @overload
    def submit_restore(
        self,
        picture: "Picture",
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[Picture]": ...

    @overload
    def submit_restore(
        self,
        picture: "list[Picture] | tuple[Picture, ...]",
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[list[Picture]]": ...

    def submit_restore(
        self,
        picture: Any,
        *,
        size: int | tuple[int, int] | None = None,
        seed: int | None = None,
        noise: "NDArray[np.float32] | None" = None,
        colour: str = "lab",
        frame_overlap: int = 0,
        timeout: float | None = None,
        wait: bool = True,
    ) -> "Future[Any]":
        """As `restore`, without waiting for the result."""
        given, back = _arrays.frames(picture)
        return _future(self._restore(given, size, seed, noise, colour, frame_overlap, timeout, wait), back)

    def _restore(
        self,
        given: "list[_native.Picture]",
        size: int | tuple[int, int] | None,
        seed: int | None,
        noise: object,
        colour: str,
        frame_overlap: int,
        timeout: float | None,
        wait: bool,
    ) -> "_native.Request":
        # As the programs take it: 1080 or 1920x1080.
        text = None if size is None else str(size)
        if isinstance(size, tuple) and len(size) == 2:
            text = f"{size[0]}x{size[1]}"
        if seed is not None and not 0 <= seed < 1 << 64:
            raise InvalidInput(f"seed: expected 0 to 2⁶⁴ − 1, found {seed}")
        if not 0 <= frame_overlap < 1 << 32:
            raise InvalidInput(f"frame_overlap: expected at least 0, found {frame_overlap}")
        given_noise = None if noise is None else _arrays.latent(noise, name="noise")

        def send(left: float | None) -> "_native.Request":
            return self._native.restore(given, text, seed, given_noise, colour, frame_overlap, left)

        return _submitted(send, timeout, wait)

    def frames(self, source: "Iterable[Picture]", *, ahead: int = 2) -> "Iterator[Picture]":
        """Sends frames through an engine for real time, for pictures or for depth, as they are asked for.

        A frame of `source` is taken on the thread that asks for results. An engine for real time sees each frame with
        what it made of the one before.

        Args:
            source: Any iterable of pictures, as for `upscale`. What it raises is raised here, and ends the stream.
            ahead: Frames that are taken before the result of an earlier one is asked for. 0 is for live sources: each
                result comes before the next frame is taken. More keep the machine busy.

        Returns:
            The results, in the order of the frames. Closing it, or dropping it, cancels what runs.

        Raises:
            InvalidInput: The engine is for another task, or a frame is not as it should be.
        """
        if ahead < 0:
            raise InvalidInput(f"ahead: expected at least 0, found {ahead}")
        task = self._native.task()
        if task == "realtime":
            return self._played(iter(source), ahead)
        if task == "depth":
            return _in_order(lambda frame: self.submit_depth(frame), iter(source), ahead)
        return _in_order(lambda frame: self.submit_upscale(frame), iter(source), ahead)

    def _played(self, source: "Iterator[Any]", ahead: int) -> "Iterator[Any]":
        stream = self._native.play()
        backs: deque[_arrays.Back] = deque()
        is_over = False
        try:
            while True:
                while not is_over and len(backs) <= ahead:
                    frame = next(source, _END)
                    if frame is _END:
                        is_over = True
                        stream.finish()
                    else:
                        given, back = _arrays.picture(frame, "frame")
                        stream.give(given)
                        backs.append(back)
                if not backs:
                    return
                is_there, made = False, None
                while not is_there:
                    is_there, made = stream.take(_LOOK)
                if made is None:
                    return
                yield backs.popleft()(made)
        finally:
            stream.cancel()


_END = object()


def _in_order(
    submit: "Callable[[Any], Future[Any]]", source: "Iterator[Any]", ahead: int
) -> "Iterator[Any]":
    """The results of requests, in their order. If the caller stops iterating, running requests are cancelled."""
    futures: "deque[Future[Any]]" = deque()
    is_over = False
    try:
        while True:
            while not is_over and len(futures) <= ahead:
                frame = next(source, _END)
                is_over = frame is _END
                if not is_over:
                    futures.append(submit(frame))
            if not futures:
                return
            result = futures[0].result()
            del futures[0]
            yield result
    finally:
        for future in futures:
            future.cancel()


def _submitted(
    send: "Callable[[float | None], _native.Request]", timeout: float | None, wait: bool
) -> "_native.Request":
    """Sends a request. If the queue is full, waits here, where Ctrl-C is handled."""
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if until is None else until - time.monotonic()
        if left is not None and left < 0.0 and timeout is not None and timeout >= 0.0:
            raise DeadlineExceeded("its time was over before there was room in the queue")
        try:
            return send(left)
        except Busy:
            if not wait:
                raise
        time.sleep(_TRY_AGAIN)


def _finished(request: "_native.Request", report: "Callable[[int, int], object] | None") -> Any:
    """The result of a request. If anything is raised meanwhile, such as by Ctrl-C, the request is cancelled."""
    try:
        last = None
        while not request.wait(_LOOK if report is None else _LOOK_WITH_PROGRESS):
            if report is not None:
                done, total = request.progress()
                if total is not None and (done, total) != last:
                    report(done, total)
                    last = (done, total)
        result = request.take()
        if report is not None:
            done, total = request.progress()
            if total is not None and last != (total, total):
                report(total, total)
        return result
    except BaseException:
        request.cancel()
        raise


class _StepReport:
    """Reports each step once, in order, with its preview if there is one."""

    def __init__(self, request: "_native.Request", on_step: Callable[[Step], object]) -> None:
        self._request = request
        self._on_step = on_step
        self._reported = 0
        # Previews of steps that are not reported yet: a preview may arrive after its progress was read.
        self._previews: "dict[int, NDArray[np.uint8]]" = {}

    def __call__(self, done: int, total: int) -> None:
        self._previews.update((steps, _arrays.shaped(picture)) for steps, picture in self._request.previews())
        for step in range(self._reported + 1, done + 1):
            self._reported = step
            self._on_step(Step(step, total, self._previews.pop(step, None)))


def _future(request: "_native.Request", convert: Callable[[Any], Result]) -> "Future[Result]":
    from tileforge._future import Future

    return Future(request, convert)


def _settings(
    negative_prompt: str | None,
    seed: int,
    steps: int | None,
    guidance: float | None,
    size: tuple[int, int] | None,
    scheduler: str | None,
    strength: float | None,
    more: Mapping[str, Any] | None,
) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "negative_prompt": negative_prompt,
        "seed": seed,
        "steps": steps,
        "guidance": guidance,
        "scheduler": scheduler,
        "strength": strength,
        "size": None if size is None else {"width": size[0], "height": size[1]},
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    for name in more or {}:
        if name in given and name != "seed":
            raise InvalidInput(f"settings: {name} is given twice")
    return {**given, **(more or {})}


def _depth_array(made: Any) -> "NDArray[np.float32]":
    values, height, width, _ = made
    depth: NDArray[np.float32] = values.reshape(height, width)
    return depth


def _tensors(made: Any) -> "dict[str, NDArray[Any]]":
    return {name: _arrays.tensor_array(element, shape, values) for name, element, shape, values in made}


def _decoded(latent: object) -> Callable[[Any], Any]:
    is_clip = getattr(latent, "ndim", 3) == 4

    def convert(made: Any) -> Any:
        pictures = [_arrays.shaped(picture) for picture in made]
        return pictures if is_clip else pictures[0]

    return convert


def _step(axes: list[Any], axis: str) -> int | None:
    lengths = [part[axis].get("step") for part in axes if isinstance(part, dict) and axis in part]
    return lengths[0] if lengths else None


def _scale(manifest: dict[str, Any]) -> int | None:
    """Output rows for each input row."""
    contract = manifest["contract"]
    given, made = (_step(contract[kind][0]["axes"], "height") for kind in ("inputs", "outputs"))
    return made // given if given and made else None


def _sizes(manifest: dict[str, Any]) -> list[tuple[int, int]]:
    """Width and height of its graphs' first input, if that has rows and columns."""
    first = manifest["contract"]["inputs"][0]
    if _step(first["axes"], "height") is None:
        return []
    graphs = [graph for graph in manifest["graphs"] if not graph.get("any_size")]
    shapes = [graph["inputs"][first["name"]] for graph in graphs]
    return sorted({(shape[-1], shape[-2]) for shape in shapes})


def _depth_kind(manifest: dict[str, Any]) -> str | None:
    units = {"relative_inverse": "relative_inverse", "inverse_metres": "metres"}
    meanings = [output["meaning"] for output in manifest["contract"]["outputs"]]
    return next((units.get(meaning["unit"]) for meaning in meanings if meaning.get("kind") == "depth"), None)
