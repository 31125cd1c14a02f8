"""The process that the demo kills: `python -m outlast.demo.child --store URL --job JSON`.

It starts a run of the desk, or goes on with it, and ends with code 0 when the run has completed,
with 3 if it is held. `--usd` sets what the run may spend.
"""

import argparse
import sys

import msgspec

import outlast
from outlast.demo.agent import Job, desk

RUN_ID = "refund-desk"

HELD = 3
"""Exit code of this process if its run is held, as that of the command line."""


def main() -> None:
    """Run the desk until it completes, is held, or this process is killed."""
    parser = argparse.ArgumentParser(description="The demo's agent process")
    parser.add_argument("--store", required=True, help="URL of the store")
    parser.add_argument("--job", required=True, help="a Job as a JSON object")
    parser.add_argument("--run-id", default=RUN_ID, help="name of the run")
    parser.add_argument("--usd", help="the most that the run may spend, in US dollars")
    options = parser.parse_args()
    job = msgspec.json.decode(options.job, type=Job)
    budget = None if options.usd is None else outlast.Budget(usd=options.usd)
    try:
        outlast.run(desk, job, run_id=options.run_id, store=options.store, budget=budget)
    except outlast.RunHeld as held:
        print(held, file=sys.stderr)
        sys.exit(HELD)


if __name__ == "__main__":
    main()
