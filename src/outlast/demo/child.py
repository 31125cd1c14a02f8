"""The process that the demo kills: `python -m outlast.demo.child --store URL --job JSON`.

It starts the desk's run, or goes on with it, and ends with code 0 when the run has completed.
"""

import argparse

import msgspec

import outlast
from outlast.demo.agent import Job, desk

RUN_ID = "refund-desk"


def main() -> None:
    """Run the desk until it completes or this process is killed."""
    parser = argparse.ArgumentParser(description="The demo's agent process")
    parser.add_argument("--store", required=True, help="URL of the store")
    parser.add_argument("--job", required=True, help="a Job as a JSON object")
    options = parser.parse_args()
    job = msgspec.json.decode(options.job, type=Job)
    outlast.run(desk, job, run_id=RUN_ID, store=options.store)


if __name__ == "__main__":
    main()
