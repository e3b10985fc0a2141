"""Sends jobs with Celery, and prints what became of them.

    celery_jobs.py URL QUEUE send < LINES    one job a line: {"id", "kind", "kwargs", "options"?}; prints the ids
    celery_jobs.py URL QUEUE get ID...       waits for each, and prints its state and its result as JSON
    celery_jobs.py URL QUEUE dead            the dead letters, one JSON object a line
    celery_jobs.py URL QUEUE left            how many messages are in the queue and in the hands of workers
    celery_jobs.py URL QUEUE raw < LINES     puts lines into the list as they are
"""

import json
import sys

import redis
from celery import Celery

url, queue, action, *more = sys.argv[1:]
app = Celery(broker=url, backend=url)
app.conf.task_default_queue = queue
app.conf.broker_connection_retry_on_startup = True
store = redis.Redis.from_url(url)
if action == "send":
    for line in sys.stdin.read().splitlines():
        job = json.loads(line)
        task = app.send_task(
            f"tileforge.{job['kind']}", kwargs=job["kwargs"], task_id=job["id"], **job.get("options", {})
        )
        print(task.id)
elif action == "get":
    for task in map(app.AsyncResult, more):
        try:
            result = task.get(timeout=120)
        except RuntimeError as error:
            result = str(error)
        print(json.dumps([task.state, result]))
elif action == "dead":
    for letter in reversed(store.lrange(f"{queue}.dead", 0, -1)):
        print(letter.decode())
elif action == "raw":
    for line in sys.stdin.buffer.read().splitlines():
        store.lpush(queue, line)
else:
    print(sum(store.llen(name) for name in store.keys(f"{queue}*") if store.type(name) == b"list")
          - store.llen(f"{queue}.dead") + store.zcard(f"{queue}.taken"))
