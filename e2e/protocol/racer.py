"""Takes locks for the race of e2e/protocol_test.go: racer.py DIRECTORY. A line of stdin has the turns of a
round; the answer has whether each has its lock. The next line releases them."""

import json
import sys
import threading

from client import Client, Held, elapsed

client = Client(sys.argv[1], ttl=3600)


def take(turn, locks, errors, n):
    while elapsed() < turn["At"] / 1e9:
        pass
    try:
        locks[n] = client.acquire(turn["Mode"], "race")
    except Held:
        pass
    except Exception as err:
        errors.append(repr(err))


for line in sys.stdin:
    turns = json.loads(line)
    locks, errors = [None] * len(turns), []
    threads = [threading.Thread(target=take, args=(t, locks, errors, n)) for n, t in enumerate(turns)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(json.dumps({"Held": [k is not None for k in locks], "Errors": errors}), flush=True)
    sys.stdin.readline()
    for k in locks:
        if k is not None:
            k.release()
    print("{}", flush=True)
