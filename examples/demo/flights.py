"""The demo's program in Python: sends flights, or reads them as a member of a group."""

import sys
import threading
import time
from collections import Counter

import ottla

LIMIT = 30.0
WAIT = 0.2  # how long a member waits for records before it looks whether it was asked to leave
CHUNK = 500  # records that cross into the core at once
STRIDE = 10 * CHUNK  # records between two lines of progress


def produce(address: str, topic: str) -> None:
    records = size = 0
    begun = None
    with ottla.Producer(address) as producer:
        for rows in chunks(sys.stdin.buffer):
            begun = begun or time.monotonic()
            batch = []
            for row in rows:
                line, key, value = row.rstrip(b"\n").split(b"\t", 2)
                batch.append(ottla.Record(value, key=key or None, headers=[("line", line)]))
                size += len(key) + len(value)
            # Fire and forget: what fails is raised by the flush.
            producer.send_many(topic, batch)
            records += len(batch)
            if records % STRIDE == 0:
                say("sent", records, size)
        producer.flush(timeout=LIMIT)
    millis = int((time.monotonic() - begun) * 1000) if begun else 0
    say("done", records, size, millis)


def chunks(lines):
    rows = []
    for row in lines:
        rows.append(row)
        if len(rows) == CHUNK:
            yield rows
            rows = []
    if rows:
        yield rows


def consume(address: str, topic: str, group: str) -> None:
    leave = asked_to_leave()
    records = size = assigned = 0
    first = last = None
    counts: Counter[str] = Counter()
    consumer = ottla.Consumer(
        address, group=group, topics=[topic], start="earliest", auto_commit=False
    )
    with consumer:
        while not leave.is_set():
            batch = consumer.poll_batch(timeout=WAIT)
            now = len(consumer.assignment())
            if now != assigned:
                assigned = now
                say("assigned", assigned)
            if batch is None:
                continue
            first = first or time.monotonic()
            rows = []
            for record in batch:
                key = (record.key or b"").decode()
                value = record.value.decode()
                line = record.headers[0][1].decode()
                rows.append(
                    f"record\t{record.partition}\t{record.offset}\t{line}\t{key}\t{value}\n"
                )
                size += len(key) + len(value)
                if key:
                    counts[key] += 1
            records += len(rows)
            sys.stdout.write("".join(rows))
            sys.stdout.flush()
            consumer.commit(batch, timeout=LIMIT)
            last = time.monotonic()
    for key, count in counts.items():
        sys.stdout.write(f"count\t{key}\t{count}\n")
    say("left", records, size, int((last - first) * 1000) if first else 0)


def asked_to_leave() -> threading.Event:
    """Set once the input has ended."""
    asked = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        asked.set()

    threading.Thread(target=watch, daemon=True).start()
    return asked


def say(*fields: object) -> None:
    print(*fields, sep="\t", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["produce", address, topic]:
            produce(address, topic)
        case ["consume", address, topic, group]:
            consume(address, topic, group)
        case _:
            sys.exit("usage: flights.py produce ADDRESS TOPIC | consume ADDRESS TOPIC GROUP")
