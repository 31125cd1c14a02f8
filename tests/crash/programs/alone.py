"""`python -m tests.crash.programs.alone JOB`: one job in an interpreter of its own."""

import importlib
import sys

import msgspec

from tests.crash.programs.job import Job

if __name__ == "__main__":
    job = msgspec.json.decode(sys.argv[1], type=Job)
    importlib.import_module(f"tests.crash.programs.{job.program}").main(job)
