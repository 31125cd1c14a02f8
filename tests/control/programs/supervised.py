"""What `outlast run` does with an order, which is given as JSON: a grace period of any length."""

import sys

import msgspec

from outlast.worker.order import Order
from outlast.worker.supervisor import run_supervised

if __name__ == "__main__":
    sys.exit(run_supervised(msgspec.json.decode(sys.argv[1], type=Order)))
