"""Answers the question of its second argument with its third; prints what came of it."""

import json
import sys

import outlast

if __name__ == "__main__":
    url, question, by = sys.argv[1:]
    client = outlast.Client(url)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        client.answer(question, outlast.Approval(True, by), by=by)
        print(json.dumps("accepted"), flush=True)
    except outlast.UsageError as refusal:
        print(json.dumps(str(refusal)), flush=True)
