"""Sends jobs to a queue of NATS JetStream, or prints its dead letters.

    nats_jobs.py URL QUEUE send [TRACEPARENT] < LINES
                                           one message a line; `base64:…` for bytes that are no text, `xN` for N bytes
    nats_jobs.py URL QUEUE dead            the dead letters, one JSON object a line
    nats_jobs.py URL QUEUE left            how many messages are in the queue
"""

import asyncio
import base64
import sys

import nats
from nats.js.api import RetentionPolicy, StreamConfig


def message(line):
    if line.startswith("base64:"):
        return base64.b64decode(line.removeprefix("base64:"))
    if line.startswith("x") and line[1:].isdigit():
        return b"x" * int(line[1:])
    return line.encode()


async def main(url, queue, action, traceparent=None):
    client = await nats.connect(url, connect_timeout=10)
    stream = client.jetstream(timeout=10)
    # The worker makes the same ones, if it comes first.
    jobs = StreamConfig(name=queue, subjects=[f"{queue}.jobs"], retention=RetentionPolicy.WORK_QUEUE)
    await stream.add_stream(jobs)
    await stream.add_stream(StreamConfig(name=f"{queue}-dead", subjects=[f"{queue}.dead"]))
    if action == "send":
        for line in sys.stdin.read().splitlines():
            headers = {"traceparent": traceparent} if traceparent else None
            await stream.publish(f"{queue}.jobs", message(line), headers=headers)
    elif action == "dead":
        number = (await stream.stream_info(f"{queue}-dead")).state
        for sequence in range(number.first_seq, number.last_seq + 1) if number.messages else ():
            print((await stream.get_msg(f"{queue}-dead", sequence)).data.decode())
    else:
        print((await stream.stream_info(queue)).state.messages)
    await client.drain()


asyncio.run(main(*sys.argv[1:]))
