#!/usr/bin/env python3
"""Shows that a queue of jobs loses nothing: NATS, S3 and two workers, of which one is killed.

    target/server-venv/bin/python scripts/try_cluster.py PROGRAM ENGINES [--jobs 100]

PROGRAM is tileforge-server, ENGINES a folder with the engine compact-x4. Starts nats-server, moto's S3 and two workers
on free ports of this machine, sends jobs, kills the worker that has done some of them (SIGKILL), and counts the results.
`make try-cluster` makes everything that it needs.

`--azurite FOLDER/node_modules/.bin/azurite-blob` takes Microsoft's emulator of Azure's store instead (`npm install
azurite`), and needs `pip install azure-storage-blob`. `--gcs PYTHON` takes Google's emulator of its store, in the
environment of PYTHON ([google_store.py](google_store.py) says how to make it).
"""

import argparse
import asyncio
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import nats
from commands import free_port
from nats.js.api import RetentionPolicy, StreamConfig

BUCKET = "pictures"
QUEUE = "tileforge"

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("program", type=pathlib.Path)
parser.add_argument("engines", type=pathlib.Path)
parser.add_argument("--jobs", type=int, default=100)
parser.add_argument("--azurite", type=pathlib.Path, metavar="PROGRAM", help="a store of Azure instead of S3")
parser.add_argument("--gcs", type=pathlib.Path, metavar="PYTHON", help="a store of Google's instead of S3")
arguments = parser.parse_args()

processes = []


def start(folder, name, command, environment=None):
    log = open(folder / f"{name}.log", "wb")
    process = subprocess.Popen(
        command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )
    processes.append(process)
    return process


def wait_for(what, holds, seconds=120):
    until = time.monotonic() + seconds
    while True:
        try:
            if value := holds():
                return value
        except OSError:
            pass
        if time.monotonic() > until:
            sys.exit(f"{what}: not within {seconds} seconds")
        time.sleep(0.1)


def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=1):
        return True


def figure(port, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return next((float(line.split()[-1]) for line in lines if line.startswith(name + " ")), 0.0)


async def send(url, jobs):
    client = await nats.connect(url)
    stream = client.jetstream()
    config = StreamConfig(name=QUEUE, subjects=[f"{QUEUE}.jobs"], retention=RetentionPolicy.WORK_QUEUE)
    await stream.add_stream(config)
    for job in jobs:
        await stream.publish(f"{QUEUE}.jobs", json.dumps(job).encode())
    await client.close()


async def left(url):
    client = await nats.connect(url)
    stream = client.jetstream()
    messages = [(await stream.stream_info(name)).state.messages for name in (QUEUE, f"{QUEUE}-dead")]
    await client.close()
    return messages


class S3:
    """moto's S3."""

    name, place = "moto's S3", f"s3://{BUCKET}"

    def __init__(self, folder):
        import boto3
        from botocore.config import Config

        self.port = free_port()
        start(folder, "s3", [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)])
        wait_for("moto", lambda: connected(self.port))
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        os.environ.update(keys)
        address = f"http://127.0.0.1:{self.port}"
        self.environment = {"AWS_ENDPOINT": address, "AWS_ALLOW_HTTP": "true"}
        self.client = boto3.client(
            "s3", endpoint_url=address, region_name="us-east-1", config=Config(retries={"max_attempts": 5})
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, name, content):
        self.client.put_object(Bucket=BUCKET, Key=name, Body=content)

    def get(self, name):
        return self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()

    def names(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return {entry["Key"] for page in pages for entry in page.get("Contents", [])}


class Azure:
    """Azurite."""

    name, place = "Azurite", f"az://{BUCKET}"
    # The account and the key that every Azurite has.
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, folder):
        from azure.storage.blob import BlobServiceClient

        self.port = free_port()
        line = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(folder / "azurite")]
        start(folder, "azurite", [str(arguments.azurite), *line, "--skipApiVersionCheck"])
        wait_for("Azurite", lambda: connected(self.port))
        address = f"http://127.0.0.1:{self.port}/{self.account}"
        self.environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account, "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_ENDPOINT": address, "AZURE_ALLOW_HTTP": "true",
        }  # fmt: skip
        self.client = BlobServiceClient(address, credential=self.key).create_container(BUCKET)

    def put(self, name, content):
        self.client.upload_blob(name, content)

    def get(self, name):
        return self.client.download_blob(name).readall()

    def names(self, prefix):
        return set(self.client.list_blob_names(name_starts_with=prefix))


class Google:
    """Google's own emulator of its store, which has both its interfaces: workers use that of XML, this uses JSON."""

    name, place = "storage-testbench", f"gs://{BUCKET}"

    def __init__(self, folder):
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        start(folder, "gcs", [str(arguments.gcs), "scripts/google_store.py", str(self.port)])
        wait_for("storage-testbench", lambda: connected(self.port))
        account = {"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": True}
        self.environment = {
            "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account | {"gcs_base_url": self.address}),
            "GOOGLE_ALLOW_HTTP": "true",
        }
        self.ask("storage/v1/b?project=project", json.dumps({"name": BUCKET}).encode(), "application/json")

    def ask(self, path, content=None, kind="application/octet-stream"):
        request = urllib.request.Request(f"{self.address}/{path}", content, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()

    def put(self, name, content):
        self.ask(f"upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={urllib.parse.quote(name, '')}", content)

    def get(self, name):
        return self.ask(f"storage/v1/b/{BUCKET}/o/{urllib.parse.quote(name, '')}?alt=media")

    def names(self, prefix):
        found, page = set(), ""
        while page is not None:
            asked = urllib.parse.urlencode({"prefix": prefix, "pageToken": page} if page else {"prefix": prefix})
            listed = json.loads(self.ask(f"storage/v1/b/{BUCKET}/o?{asked}"))
            found |= {entry["name"] for entry in listed.get("items", [])}
            page = listed.get("nextPageToken")
        return found


def run(folder):
    broker_port = free_port()
    broker = f"nats://127.0.0.1:{broker_port}"
    start(folder, "nats", ["nats-server", "-a", "127.0.0.1", "-p", str(broker_port), "-js", "-sd", str(folder / "nats")])
    wait_for("nats-server", lambda: connected(broker_port))
    store = (Azure if arguments.azurite else Google if arguments.gcs else S3)(folder)
    picture = subprocess.run(
        [sys.executable, "tests/clients/write_png.py", str(folder / "in.png"), "64x48"], check=True
    ) and (folder / "in.png").read_bytes()
    store.put("in.png", picture)
    print(f"nats-server at {broker}, {store.name} at 127.0.0.1:{store.port}")

    ports = [free_port(), free_port()]
    workers = [
        start(
            folder,
            f"worker-{number}",
            [str(arguments.program), "work", "--engines", str(arguments.engines), "--http", f"127.0.0.1:{port}",
             "--store", store.place, "--lease", "5", "--log", "text"],
            {"TILEFORGE_BROKER": broker, **store.environment},
        )
        for number, port in enumerate(ports)
    ]
    for port in ports:
        wait_for("a worker", lambda: figure(port, "tileforge_broker_connected") == 1)
    print(f"two workers, processes {workers[0].pid} and {workers[1].pid}")

    names = [f"out/{number:03}.png" for number in range(arguments.jobs)]
    jobs = [
        {
            "id": f"job-{number}", "kind": "upscale", "inputs": {"image": f"{store.place}/in.png"},
            "output": f"{store.place}/{name}", "options": {"engine": "compact-x4"},
        }
        for number, name in enumerate(names)
    ]
    began = time.monotonic()
    asyncio.run(send(broker, jobs))
    print(f"{len(jobs)} jobs sent")

    def done(port):
        return figure(port, 'tileforge_jobs{outcome="done"}')

    # In the middle of its work, with jobs in its hands.
    wait_for("the first worker", lambda: done(ports[0]) >= len(jobs) / 5 and figure(ports[0], "tileforge_jobs_running"))
    before, hands = done(ports[0]), figure(ports[0], "tileforge_jobs_running")
    workers[0].kill()
    print(f"worker {workers[0].pid} killed: it had done {before:.0f} jobs and was at {hands:.0f}")

    wait_for("all jobs", lambda: asyncio.run(left(broker))[0] == 0, seconds=600)
    waiting, dead = asyncio.run(left(broker))
    print(f"the queue is empty after {time.monotonic() - began:.1f} s; the second worker did {done(ports[1]):.0f} jobs")

    found = store.names("out/")
    expected = {key for name in names for key in (name, f"{name}.job.json")}
    digests = set()
    for number, name in enumerate(names):
        result = store.get(name)
        marker = json.loads(store.get(f"{name}.job.json"))
        digest = hashlib.sha256(result).hexdigest()
        assert marker["id"] == f"job-{number}" and marker["done"]["sha256"] == digest, marker
        digests.add(digest)
    print(f"{len(found & set(names))} results, each there once; {dead} dead letters")
    return found == expected and len(digests) == 1 and dead == 0


with tempfile.TemporaryDirectory() as temporary:
    try:
        whole = run(pathlib.Path(temporary))
    finally:
        for process in processes:
            process.kill()
            process.wait()
if not whole:
    sys.exit("a result is missing, or is there twice")
print("nothing was lost")
