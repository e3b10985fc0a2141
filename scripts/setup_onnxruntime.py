#!/usr/bin/env python3
"""Puts ONNX Runtime, OpenVINO, and for --gpu and --rtx NVIDIA's libraries, into .onnxruntime/ of the repository.

The libraries come from Python wheels, because pip can get those in most networks. Each wheel is pinned by its SHA-256,
in the table of `runtime setup`, which does the same for the programs of a release. It does not depend on the Python
that runs this script. The product contains no Python.

    .onnxruntime/lib/libonnxruntime.so      what `runtime` loads, with all that it needs beside it
    .onnxruntime/lib/libopenvino_c.so.*     what runs graphs on the processor faster than ONNX Runtime does
    .onnxruntime/lib/libtensorrt_rtx.so.1   what `crates/tensorrt` builds plans for RTX GPUs with (--rtx or --gpu)
    .onnxruntime/include/                   the option names of the TensorRT-RTX provider, for our tests (--gpu)
    .onnxruntime/licences/PACKAGE/          the licence texts that came in the wheels
    .onnxruntime/VERSION.json               what is installed, with the SHA-256 of every file

A second run with nothing to do takes a fraction of a second. After a killed run, the earlier installation is intact, or
the next run detects the damage and installs again.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 9):
    sys.exit("error: setup_onnxruntime.py needs Python 3.9 or newer, found " + sys.version.split()[0])

import argparse
import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
# Which wheels there are, and what is installed of each. `runtime setup` has the same table.
TABLE = REPOSITORY / "runtime/cli/src/setup/libraries.json"

# Larger files are hashed again only if their size or time has changed: NVIDIA's libraries would take seconds.
ALWAYS_HASHED_BYTES = 32 << 20

# The versions that the TensorRT provider of ONNX Runtime 1.31 works with, and one whose CUDA matches the wheels
# below.
TENSORRT_OLDEST, TENSORRT_NEWEST = (10, 13, 2), (10, 16, 1)
TENSORRT_ADVISED = "tensorrt_cu13_libs-10.14.1.48-py2.py3-none-manylinux_2_28_x86_64.whl"

class SetupError(Exception):
    """A message for the user: what was expected, what was found, what to do next."""


@dataclass(frozen=True)
class Wheel:
    """One wheel, and which of its members are installed."""

    package: str
    version: str
    tags: str  # "python-abi-platform", the tail of the wheel's name
    sha256: str
    libraries: tuple[str, ...]  # patterns over member paths; all land in lib/ under their base name
    without: str = ""  # pattern of base names that are left out, because they are large and not needed
    headers: str = ""  # pattern over member paths; these land in include/
    file: Path | None = None  # where the user has put it; None: pip downloads it

    @property
    def name(self) -> str:
        return f"{self.package.replace('-', '_')}-{self.version}-{self.tags}.whl"

    @property
    def glibc(self) -> tuple[int, int]:
        """The oldest glibc that it runs on. manylinux_2_28 is that of Debian 10, Ubuntu 20.04, RHEL 8 or newer."""
        version = re.search(r"manylinux_(\d+)_(\d+)", self.tags)
        return (int(version[1]), int(version[2])) if version else (0, 0)

    def target(self, member: str) -> Path | None:
        """Where a member is installed; None: nowhere."""
        name = member.rsplit("/", 1)[-1]
        wanted = any(fnmatchcase(member, pattern) for pattern in self.libraries)
        if wanted and not fnmatchcase(name, self.without):
            return Path("lib", name)
        if fnmatchcase(member, self.headers):
            return Path("include", name)
        if any(fnmatchcase(name.lower(), pattern) for pattern in LICENCES):
            return Path("licences", self.package, name)
        return None


def read_table() -> tuple[list[str], dict[str, dict[str, dict[str, list[Wheel]]]]]:
    """The patterns of licence texts, and the wheels by system, part and machine."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    wheels: dict[str, dict[str, dict[str, list[Wheel]]]] = {}
    for record in table["wheels"]:
        parts = wheels.setdefault(record["system"], {part: {} for part in table["parts"]})
        wheel = Wheel(
            package=record["package"],
            version=record["version"],
            tags=record["tags"],
            sha256=record["sha256"],
            libraries=tuple(record["libraries"]),
            without=record.get("without", ""),
            headers=record.get("headers", ""),
        )
        parts[record["part"]].setdefault(record["machine"], []).append(wheel)
    return table["licences"], wheels


LICENCES, WHEELS = read_table()
LINUX = WHEELS["linux"]
CPU_WHEELS, OPENVINO_WHEELS, GPU_WHEELS = LINUX["cpu"], LINUX["openvino"], LINUX["gpu"]
RTX_WHEELS, PROVIDER_WHEELS = LINUX["rtx"], LINUX["provider"]

ONNXRUNTIME = CPU_WHEELS["x86_64"][0].version
# The release that plans for RTX GPUs are built with, without the number of its build.
TENSORRT_RTX = RTX_WHEELS["x86_64"][0].version.rsplit(".", 1)[0]

ELSEWHERE = (
    f"Get ONNX Runtime {ONNXRUNTIME} for this system from its release page and set ORT_DYLIB_PATH to its shared "
    f"library; "
    "nothing else of `make setup` is needed."
)

# For the summary: the libraries that each provider needs, in lib/ or found by the system.
CUDA_LIBRARIES = [
    "libcudart.so.13",
    "libcublasLt.so.13",
    "libcublas.so.13",
    "libcurand.so.10",
    "libcudnn.so.9",
    "libcuda.so.1",
]
TENSORRT_LIBRARIES = ["libnvinfer.so.10", "libnvonnxparser.so.10"]
RTX_LIBRARIES = ["libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"]
PROVIDER_LIBRARIES = [
    "libonnxruntime_providers_nv_tensorrt_rtx.so", "libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1",
]  # fmt: skip


def main() -> int:
    arguments = parse_arguments()
    try:
        machine = arguments.machine or supported_machine(arguments.gpu, arguments.rtx)
        tensorrt = tensorrt_from_file(arguments.tensorrt_wheel) if arguments.tensorrt_wheel else None
        arguments.destination.mkdir(parents=True, exist_ok=True)
        with only_run(arguments.destination):
            provision(arguments, machine, tensorrt)
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}" if error.filename else f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; what was installed before is still there", file=sys.stderr)
        return 130
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=f"Provision ONNX Runtime {ONNXRUNTIME} for this repository.",
        epilog="What --gpu and --rtx installed serves the CPU too, so a later run without them keeps it. "
        "To go back, delete the folder.",
    )
    add = parser.add_argument
    add(
        "--gpu",
        action="store_true",
        help="the CUDA and TensorRT build, with CUDA 13 and cuDNN 9: 1.2 GB to download, 1.7 GB installed",
    )
    add(
        "--rtx",
        action="store_true",
        help="also TensorRT for RTX, which builds plans for RTX GPUs without a GPU: 95 MB to "
        "download, 240 MB installed; part of --gpu, which also takes the provider that runs them",
    )
    add(
        "--without-openvino",
        action="store_true",
        help="without OpenVINO, which is 59 MB to download and 93 MB installed (aarch64: 30 MB and 69 MB)",
    )
    add(
        "--only-onnxruntime",
        action="store_true",
        help="with --gpu: without OpenVINO and NVIDIA's libraries for CUDA, as `make conformance` needs it",
    )
    add(
        "--tensorrt-wheel",
        type=Path,
        metavar="FILE",
        help="with --gpu: NVIDIA's wheel of TensorRT's libraries, to add them",
    )
    add("--destination", type=Path, default=REPOSITORY / ".onnxruntime", metavar="DIR", help="default: %(default)s")
    add(
        "--machine",
        choices=sorted(CPU_WHEELS),
        help="for another processor than this machine's, as releases need it: its library is not tried out",
    )
    add(
        "--system",
        choices=sorted(WHEELS),
        default="linux",
        help="with --machine: for another system than Linux, as releases need it; ONNX Runtime alone is installed",
    )
    arguments = parser.parse_args()
    if arguments.machine and (arguments.gpu or arguments.rtx):
        parser.error("--machine goes with neither --gpu nor --rtx")
    if arguments.system != "linux" and arguments.machine not in WHEELS[arguments.system]["cpu"]:
        known = ", ".join(sorted(WHEELS[arguments.system]["cpu"]))
        parser.error(f"--system {arguments.system} needs --machine: {known}")
    if arguments.tensorrt_wheel and not arguments.gpu:
        parser.error("--tensorrt-wheel needs --gpu")
    if arguments.only_onnxruntime and (arguments.tensorrt_wheel or arguments.rtx or not arguments.gpu):
        parser.error("--only-onnxruntime needs --gpu, and goes with no --tensorrt-wheel and no --rtx")
    return arguments


def supported_machine(gpu: bool, rtx: bool) -> str:
    """This machine's name in the spelling of wheels; an error if none of our wheels runs here."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux":
        raise SetupError(f"ONNX Runtime is provisioned on Linux only, and this is {system}. {ELSEWHERE}")
    if machine not in (GPU_WHEELS if gpu else CPU_WHEELS):
        known = ", ".join(GPU_WHEELS if gpu else CPU_WHEELS)
        raise SetupError(
            f"ONNX Runtime's {'GPU ' if gpu else ''}wheel exists for {known}, and this machine is {machine}. "
            f"{ELSEWHERE}"
        )
    if rtx and machine not in RTX_WHEELS:
        known = ", ".join(RTX_WHEELS)
        raise SetupError(
            f"TensorRT for RTX is pinned for {known}, and this machine is {machine}; build plans on another machine"
        )
    needed = (GPU_WHEELS if gpu else CPU_WHEELS)[machine][0].glibc
    if is_older_than(needed):
        oldest = ".".join(map(str, needed))
        raise SetupError(
            f"ONNX Runtime's wheel needs glibc {oldest} or newer, found {c_library() or 'another C library'}. {ELSEWHERE}"
        )
    return machine


def c_library() -> str:
    """This machine's C library, such as "glibc 2.36"; empty if it is not glibc."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # musl, for one
        return ""


def is_older_than(oldest: tuple[int, int]) -> bool:
    """Whether this machine's C library is not glibc, or an older one."""
    glibc = re.match(r"glibc (\d+)\.(\d+)", c_library())
    return not glibc or (int(glibc[1]), int(glibc[2])) < oldest


def tensorrt_from_file(path: Path) -> Wheel:
    """The wheel that the user downloaded. Only NVIDIA's index has it, so it is not pinned; its hash is recorded."""
    wheel = tensorrt_wheel(path.name, "", None)
    if not wheel:
        oldest, newest = (".".join(map(str, version)) for version in (TENSORRT_OLDEST, TENSORRT_NEWEST))
        expected = f"the Linux x86_64 wheel of TensorRT {oldest} to {newest} for CUDA 13, such as {TENSORRT_ADVISED}"
        raise SetupError(f"{path}: expected {expected}")
    if not zipfile.is_zipfile(path):
        raise SetupError(f"{path}: not there, or not a whole wheel; download it again")
    return tensorrt_wheel(path.name, digest(path), path)


def tensorrt_wheel(name: str, sha256: str, file: Path | None) -> Wheel | None:
    parts = re.fullmatch(r"tensorrt_cu13_libs-((\d+)\.(\d+)\.(\d+)[^-]*)-([^-]+-none-manylinux[^-]+_x86_64)\.whl", name)
    if not parts or not TENSORRT_OLDEST <= tuple(map(int, parts.group(2, 3, 4))) <= TENSORRT_NEWEST:
        return None
    return Wheel("tensorrt-cu13-libs", parts[1], parts[5], sha256, ("tensorrt_libs/lib*.so*",), file=file)


@contextlib.contextmanager
def only_run(destination: Path):
    """A lock: two runs at once would replace each other's files. It ends with the process, even a killed one."""
    import fcntl  # not on Windows, which supported_machine has already refused

    with open(destination / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in destination.glob("staging-*"):
            shutil.rmtree(leftover)
        yield


def provision(arguments: argparse.Namespace, machine: str, tensorrt: Wheel | None) -> None:
    """Installs the wheels that were asked for, and keeps what is whole from an earlier run."""
    destination = arguments.destination
    installed = read_installed(destination)
    whole = {name: record for name, record in installed.items() if is_whole(destination, record)}

    def had(package: str) -> bool:
        return any(name.startswith(f"{package}-") for name in installed)

    if arguments.system != "linux":
        for_another_system(arguments, machine, installed, whole)
        return
    gpu = arguments.gpu or (machine in GPU_WHEELS and had("onnxruntime_gpu"))
    rtx = gpu or arguments.rtx or had("tensorrt_rtx_cu13_libs")
    wheels = list(GPU_WHEELS[machine] if gpu else CPU_WHEELS[machine])
    if arguments.only_onnxruntime:
        del wheels[1:]
    elif not arguments.without_openvino and not is_older_than(OPENVINO_WHEELS[machine][0].glibc):
        wheels += OPENVINO_WHEELS[machine]
    wheels += RTX_WHEELS.get(machine, []) if rtx else []
    wheels += PROVIDER_WHEELS.get(machine, []) if gpu else []
    if gpu:
        earlier = [tensorrt_wheel(name, record["sha256"], None) for name, record in whole.items()]
        wheels += [tensorrt] if tensorrt else filter(None, earlier)

    wanted = {wheel.name: wheel.sha256 for wheel in wheels}
    reusable = {name: record for name, record in whole.items() if record["sha256"] == wanted.get(name)}
    library = destination / "lib" / f"libonnxruntime.so.{ONNXRUNTIME}"
    linked = library.with_name("libonnxruntime.so").resolve() == library.resolve()
    changed = not linked or reusable.keys() != wanted.keys() or installed.keys() != wanted.keys()
    if changed:
        install(destination, wheels, reusable, runs_here=machine == platform.machine())
    report(destination, wheels, gpu and not arguments.only_onnxruntime, changed)


def for_another_system(arguments: argparse.Namespace, machine: str, installed: dict, whole: dict) -> None:
    """Installs ONNX Runtime for a release that is for another system than this one."""
    wheels = WHEELS[arguments.system]["cpu"][machine]
    wanted = {wheel.name: wheel.sha256 for wheel in wheels}
    reusable = {name: record for name, record in whole.items() if record["sha256"] == wanted.get(name)}
    changed = reusable.keys() != wanted.keys() or installed.keys() != wanted.keys()
    if changed:
        install(arguments.destination, wheels, reusable, runs_here=False)
    report(arguments.destination, wheels, False, changed)


def read_installed(destination: Path) -> dict:
    """The wheels in VERSION.json by name; none if the file is missing or not ours."""
    try:
        wheels = json.loads((destination / "VERSION.json").read_text(encoding="utf-8"))["wheels"]
        return {name: {"sha256": record["sha256"], "files": dict(record["files"])} for name, record in wheels.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def is_whole(destination: Path, record: dict) -> bool:
    """Whether every file of a wheel is there and unchanged."""
    return bool(record["files"]) and all(
        same(destination / path, expected) for path, expected in record["files"].items()
    )


def same(path: Path, expected: dict) -> bool:
    try:
        found = path.stat()
        if found.st_size != expected["bytes"]:
            return False
        if found.st_size > ALWAYS_HASHED_BYTES and found.st_mtime_ns == expected["modified_ns"]:
            return True
        return digest(path) == expected["sha256"]
    except (OSError, KeyError, TypeError):
        return False


def fingerprint(path: Path) -> dict:
    status = path.stat()
    return {"bytes": status.st_size, "modified_ns": status.st_mtime_ns, "sha256": digest(path)}


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        sha256 = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            sha256.update(block)
    return sha256.hexdigest()


def install(destination: Path, wheels: list[Wheel], reusable: dict, runs_here: bool) -> None:
    """Makes the new installation beside the present one, tests it if it runs here, and moves it into place."""
    with tempfile.TemporaryDirectory(prefix="staging-", dir=destination) as folder:
        staging = Path(folder)
        records = {}
        for wheel in wheels:
            if wheel.name in reusable:
                records[wheel.name] = reusable[wheel.name]
                for path in reusable[wheel.name]["files"]:
                    (staging / path).parent.mkdir(parents=True, exist_ok=True)
                    os.link(destination / path, staging / path)
            else:
                file = wheel.file or download(wheel, staging)
                records[wheel.name] = {"sha256": wheel.sha256, "files": unpack(wheel, file, staging)}
                if not wheel.file:
                    file.unlink()  # at once, because all wheels together have a gigabyte
        if (staging / "lib" / f"libonnxruntime.so.{ONNXRUNTIME}").exists():
            (staging / "lib" / "libonnxruntime.so").symlink_to(f"libonnxruntime.so.{ONNXRUNTIME}")
        if runs_here:
            try_out(staging / "lib" / "libonnxruntime.so")
            try_out_openvino(staging / "lib")
        rtx = staging / "lib" / "libtensorrt_rtx.so.1"
        if rtx.exists():
            # The library opens itself by its plain name when it looks for plugins.
            rtx.with_name("libtensorrt_rtx.so").symlink_to(rtx.name)
            try_out_rtx(rtx)

        first = wheels[0]
        version = {
            "version": first.version,
            "kind": "gpu" if first.package == "onnxruntime-gpu" else "cpu",
            "wheel": first.name,
            "sha256": first.sha256,
            "wheels": records,
        }
        (staging / "VERSION.json").write_text(json.dumps(version, indent=2) + "\n", encoding="utf-8")
        # VERSION.json comes last. If the run is killed before, the next run finds no match and installs again.
        for part in ("licences", "include", "lib"):
            if (destination / part).exists():
                os.rename(destination / part, staging / f"previous-{part}")
            if (staging / part).exists():
                os.rename(staging / part, destination / part)
        os.replace(staging / "VERSION.json", destination / "VERSION.json")


def download(wheel: Wheel, folder: Path) -> Path:
    """Downloads exactly this wheel with pip, from the index that the user's pip is set up for."""
    if importlib.util.find_spec("pip") is None:
        raise SetupError(
            f"{sys.executable} has no pip, which fetches ONNX Runtime; on Debian and Ubuntu: apt install python3-pip"
        )
    print(f"downloading {wheel.name}", file=sys.stderr)
    tag = wheel.tags.split("-")[-1].split(".")[0]
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
    # The wheel's tags, not those of this Python: the library is C++, so the wheel's Python version does not matter.
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command += ["--implementation=cp", "--python-version=311", "--abi=cp311", f"--platform={tag}"]
    command += ["--require-hashes", "--requirement", str(requirements), "--dest", str(folder)]
    if not sys.stderr.isatty():
        command.append("--quiet")
    if subprocess.run(command, stdout=sys.stderr.fileno()).returncode != 0:
        raise SetupError(
            f"pip could not fetch {wheel.name}; its own message is above. "
            "Check the network and pip's settings (PIP_INDEX_URL for a mirror, PIP_FIND_LINKS for a folder of wheels), "
            "then run `make setup` again"
        )
    return folder / wheel.name


def unpack(wheel: Wheel, file: Path, folder: Path) -> dict:
    """Extracts libraries and licences. Returns the fingerprint of each by its path in the installation."""
    files = {}
    try:
        with zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                path = wheel.target(member)
                if path is None:
                    continue
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, open(folder / path, "wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                files[path.as_posix()] = fingerprint(folder / path)
    except zipfile.BadZipFile as error:
        raise SetupError(f"{file}: not a whole wheel ({error}); download it again") from error
    if not any(path.startswith("lib/") for path in files):
        raise SetupError(
            f"{file}: expected libraries at {', '.join(wheel.libraries)}, found none; is it {wheel.package} {wheel.version}?"
        )
    return files


class ApiBase(ctypes.Structure):
    """`OrtApiBase` of onnxruntime_c_api.h."""

    _fields_ = [("get_api", ctypes.c_void_p), ("get_version_string", ctypes.CFUNCTYPE(ctypes.c_char_p))]


def try_out(library: Path) -> None:
    """Loads the library and asks for its version, so that a missing libstdc++ is reported now."""
    try:
        loaded = ctypes.CDLL(str(library))
        loaded.OrtGetApiBase.restype = ctypes.POINTER(ApiBase)
        version = loaded.OrtGetApiBase().contents.get_version_string().decode()
    except (OSError, AttributeError) as error:
        raise SetupError(f"ONNX Runtime was downloaded and cannot be loaded on this machine: {error}") from error
    if version != ONNXRUNTIME:
        raise SetupError(f"expected ONNX Runtime {ONNXRUNTIME}, found {version} in {library.name}")


def try_out_openvino(folder: Path) -> None:
    """Loads OpenVINO, if it is there, so that a missing library is reported now."""
    for library in folder.glob("libopenvino_c.so.*"):
        try:
            ctypes.CDLL(str(library)).ov_get_openvino_version  # noqa: B018: whether it has the function
        except (OSError, AttributeError) as error:
            raise SetupError(
                f"OpenVINO was downloaded and cannot be loaded on this machine: {error}. "
                "`make setup OPENVINO=0` installs ONNX Runtime alone"
            ) from error


def try_out_rtx(library: Path) -> None:
    """Loads TensorRT for RTX and asks for its version. It needs neither a GPU nor a driver for that."""
    try:
        loaded = ctypes.CDLL(str(library))
        version = ".".join(str(getattr(loaded, f"getInferLib{part}Version")()) for part in ("Major", "Minor", "Patch"))
    except (OSError, AttributeError) as error:
        raise SetupError(f"TensorRT for RTX was downloaded and cannot be loaded on this machine: {error}") from error
    if version != TENSORRT_RTX:
        raise SetupError(f"expected TensorRT for RTX {TENSORRT_RTX}, found {version} in {library.name}")


def report(destination: Path, wheels: list[Wheel], gpu: bool, changed: bool) -> None:
    """Prints what is installed and, for a GPU, which providers can work and what the others lack."""
    folder = destination / "lib"
    print(f"ONNX Runtime {wheels[0].version} ({'gpu' if gpu else 'cpu'}) {'is now' if changed else 'is'} in {folder}")
    for wheel in wheels:
        if wheel.package == "openvino":
            print(f"OpenVINO {wheel.version} is there too, for processors")
        if wheel in RTX_WHEELS.get(platform.machine(), []):
            licence = destination / "licences" / wheel.package
            print(
                f"TensorRT for RTX {wheel.version} is there too, under NVIDIA's licence in {licence}: "
                "not to be passed on"
            )
    if not gpu:
        return
    providers = (
        ("CUDA", CUDA_LIBRARIES),
        ("TensorRT", TENSORRT_LIBRARIES + CUDA_LIBRARIES),
        ("TensorRT-RTX", RTX_LIBRARIES + PROVIDER_LIBRARIES),
    )
    for provider, libraries in providers:
        missing = [name for name in libraries if not found(destination / "lib", name)]
        print(f"{provider}: {'no, missing ' + ', '.join(missing) if missing else 'yes'}")
        if "libcuda.so.1" in missing and provider == "CUDA":
            print("  libcuda.so.1 comes with NVIDIA's driver, and CUDA 13 needs release 580 or newer of it.")
        if "libnvinfer.so.10" in missing:
            print(
                "  TensorRT's libraries are not on PyPI: download\n"
                f"    {TENSORRT_ADVISED}\n"
                "  from NVIDIA's own Python package index (TensorRT's installation guide names it, under pip), then "
                "run\n"
                "    make setup GPU=1 TENSORRT_WHEEL=FILE\n"
                "  A TensorRT 10 that the system's package manager has installed serves as well."
            )


def found(folder: Path, name: str) -> bool:
    if (folder / name).exists():
        return True
    with contextlib.suppress(OSError):
        ctypes.CDLL(name)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
