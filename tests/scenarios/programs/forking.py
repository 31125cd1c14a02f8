"""A run in whose middle the process is forked in every way, while the store is open.

Options: `store`, `rounds`."""

import contextvars
import json
import multiprocessing
import os
import subprocess
import sys
import time

import outlast

options = json.loads(sys.argv[1])
store = options["store"]
fork = multiprocessing.get_context("fork")
said = fork.Queue()


@outlast.step
def note(number):
    return number


@outlast.workflow
def other():
    return note(1)


def use_the_library():
    try:
        # In a context of its own: it was forked off in workflow code, where no run is started.
        said.put(["ran", contextvars.Context().run(outlast.run, other, store=store)])
    except outlast.OutlastError as problem:
        said.put([type(problem).__name__, str(problem)])


def use_the_parents_run():
    try:
        said.put(["recorded", note(99)])
    except BaseException as problem:
        said.put([type(problem).__name__, str(problem)])


def sleep_for_ever():
    said.put("asleep")
    time.sleep(3600)


def in_child(target):
    child = fork.Process(target=target)
    child.start()
    answer = said.get(timeout=20)
    child.join()
    return answer


@outlast.step
def forks_in_its_body():
    child = fork.Process(target=use_the_library)
    child.start()
    answer = said.get(timeout=20)
    child.join()
    return answer


@outlast.step
def starts_a_program(number):
    code = f"import outlast; print(len(outlast.Client({store!r}).runs()))"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout)


@outlast.workflow
def work(rounds):
    answers = [in_child(use_the_library), in_child(use_the_parents_run), forks_in_its_body()]
    child = fork.Process(target=sleep_for_ever)
    child.start()
    said.get(timeout=20)  # a signal in the middle of a fork is lost, in any Python program
    child.terminate()
    child.join()
    for number in range(rounds):
        pid = os.fork()
        if pid == 0:
            if number % 2:
                os._exit(0)
            sys.exit(0)  # with all that runs at an orderly exit
        os.waitpid(pid, 0)
        note(number)
    return [answers, starts_a_program(0), child.exitcode]


try:
    result = outlast.run(work, options["rounds"], run_id="r", store=store)
except SystemExit:
    os._exit(0)  # a forked child on its way out
print(json.dumps({"result": result}))
