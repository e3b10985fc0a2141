#!/usr/bin/env python3
"""How long each end-to-end test takes, the slowest first: wall seconds and processor seconds, of one test at a time.

    scripts/test_times.py [FILTER…] [--skip FILTER…]

Processor seconds include those of the programs that a test runs, and hardly depend on what else the machine does.
Engines that several tests share are counted for the first of them.
"""

import json
import os
import re
import subprocess
import sys
import time


def program():
    build = ["cargo", "test", "--release", "--locked", "-p", "end-to-end", "--test", "whole", "--no-run"]
    messages = subprocess.run([*build, "--message-format", "json"], check=True, capture_output=True, text=True).stdout
    found = [json.loads(line) for line in messages.splitlines() if line.startswith("{")]
    return next(message["executable"] for message in reversed(found) if message.get("executable"))


def processor_seconds(process):
    """Of a process and of its ended children: proc_pid_stat(5), fields 14 to 17."""
    with open(f"/proc/{process}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main():
    line = [os.environ.get("TEST_PROGRAM") or program(), "--test-threads", "1", *sys.argv[1:]]
    running = subprocess.Popen(line, cwd="tests", stdout=subprocess.PIPE, text=True, bufsize=1)
    before = (time.monotonic(), 0.0)
    rows = []
    for text in running.stdout:
        if outcome := re.match(r"test (\S+) \.\.\. (\w+)", text):
            now = (time.monotonic(), processor_seconds(running.pid))
            rows.append((now[0] - before[0], now[1] - before[1], outcome[2], outcome[1]))
            before = now
            print(f"{rows[-1][0]:8.1f} {rows[-1][1]:8.1f}  {rows[-1][2]:6} {rows[-1][3]}", flush=True)
        elif text.startswith(("test result", "error", "thread", "failures")):
            print(text.strip())
    print("\n    wall      cpu  the slowest")
    for wall, cpu, outcome, name in sorted(rows, reverse=True)[:20]:
        print(f"{wall:8.1f} {cpu:8.1f}  {outcome:6} {name}")
    print(f"{sum(row[0] for row in rows):8.1f} {sum(row[1] for row in rows):8.1f}  all {len(rows)}")
    sys.exit(running.wait())


if __name__ == "__main__":
    main()
