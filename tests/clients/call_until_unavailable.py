"""Calls a model over gRPC, again and again, until the server takes no more calls.

    call_until_unavailable.py ADDRESS MODEL CLIENTS

Prints a line for each call that was answered. Fails if a call fails for any other reason than that the server did not
accept it.
"""

import sys
import threading

import numpy as np
import tritonclient.grpc as grpc
from tritonclient.utils import InferenceServerException

address, model, clients = sys.argv[1:]
failures = []


def call():
    client = grpc.InferenceServerClient(address)
    given = grpc.InferInput("image", [1, 3, 24, 24], "FP32")
    given.set_data_from_numpy(np.zeros((1, 3, 24, 24), np.float32))
    while True:
        try:
            client.infer(model, [given])
            # One write: `print` writes the end of a line by itself, and another thread's line may come before it.
            sys.stdout.write("answered\n")
            sys.stdout.flush()
        except InferenceServerException as error:
            if "UNAVAILABLE" not in error.status():
                failures.append(f"{error.status()} {error}")
            return


threads = [threading.Thread(target=call) for _ in range(int(clients))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
