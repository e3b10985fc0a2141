"""Enlarges all pictures of a folder on a Ray cluster, and goes on where it stopped.

    python python/examples/ray_folder.py photos large engines/cpu/x4plus --workers 2
    python python/examples/ray_folder.py s3://bucket/photos s3://bucket/large engines/rtx4090/x4plus --gpus 1
"""

import argparse

import ray

import tileforge.ray


def main() -> None:
    """Parses the arguments, and enlarges what is missing."""
    parser = argparse.ArgumentParser(description="Enlarge all pictures of a folder on a Ray cluster.")
    parser.add_argument("photos", help="the folder of the pictures")
    parser.add_argument("large", help="the folder of the results")
    parser.add_argument("engine", help="the engine, at the same place on every machine")
    parser.add_argument("--workers", type=int, default=1, help="workers, each with an engine")
    parser.add_argument("--gpus", type=float, help="GPUs of each worker")
    arguments = parser.parse_args()
    ray.init(ignore_reinit_error=True)
    made = tileforge.ray.enlarge(
        arguments.photos,
        arguments.large,
        arguments.engine,
        concurrency=arguments.workers,
        num_gpus=arguments.gpus,
    )
    print(f"made {made} pictures")


if __name__ == "__main__":
    main()
