"""A member of a group as confluent-kafka, for `cargo xtask interop groups`.

Usage: SCRIPT HOST:PORT GROUP TOPIC STRATEGY STOP. It prints `has 0 1 2` when its partitions
change and `read VALUE` for each record, and closes once the file STOP exists.
"""

import os
import sys

from confluent_kafka import Consumer, KafkaException


def main():
    bootstrap, group, topic, strategy, stop = sys.argv[1:]
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 10000,
        }
    )
    consumer.subscribe([topic])
    before = None
    while not os.path.exists(stop):
        for message in consumer.consume(500, 0.05):
            if message.error():
                raise KafkaException(message.error())
            print("read", message.value().decode(), flush=True)
        has = sorted(place.partition for place in consumer.assignment())
        if has != before:
            print("has", *has, flush=True)
            before = has
    consumer.close()


if __name__ == "__main__":
    main()
