"""librdkafka (confluent-kafka for Python) as the load of a benchmark.

Usage: SCRIPT HOST:PORT create TOPIC PARTITIONS
       SCRIPT HOST:PORT delete TOPIC
       SCRIPT HOST:PORT stored TOPIC                  prints how many offsets were given out
       SCRIPT HOST:PORT produce TOPIC RECORDS BYTES   prints records confirmed and seconds
       SCRIPT HOST:PORT consume TOPIC RECORDS         prints records read and seconds
       SCRIPT HOST:PORT first TOPIC GROUPS            prints ms to the first record, a line a group
"""

import sys
import time
import uuid

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
LIMIT_S = 120
OFFERED_AT_ONCE = 10_000
LEADERLESS = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}


def consumer(**options):
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"bench-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # By default it waits a second wherever small records fill its queue.
            "fetch.queue.backoff.ms": 5,
            **options,
        }
    )


def stored(topic):
    """How many offsets of the topic have been given out, as the broker says."""
    asking = consumer()
    partitions = asking.list_topics(topic, timeout=LIMIT_S).topics[topic].partitions
    total = sum(end(asking, TopicPartition(topic, one)) for one in partitions)
    asking.close()
    return total


def end(asking, place):
    """The next offset of a partition; a new one may have no leader yet."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return asking.get_watermark_offsets(place, LIMIT_S)[1]
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() not in LEADERLESS:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def create(topic, partitions):
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for future in admin.create_topics([NewTopic(topic, int(partitions), 1)]).values():
        future.result(LIMIT_S)


def delete(topic):
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for future in admin.delete_topics([topic]).values():
        future.result(LIMIT_S)


def produce(topic, records, size):
    records, value = int(records), b"x" * int(size)
    before = stored(topic)
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    begin = time.monotonic()
    left = records
    while left:
        try:
            for _ in range(min(left, OFFERED_AT_ONCE)):
                producer.produce(topic, value)
                left -= 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    unsent = producer.flush(LIMIT_S)
    seconds = time.monotonic() - begin
    if unsent:
        raise SystemExit(f"{unsent} records not delivered")
    print(stored(topic) - before, f"{seconds:.4f}")


def consume(topic, records):
    records, read = int(records), 0
    reader = consumer()
    reader.subscribe([topic])
    begin = time.monotonic()
    while read < records and time.monotonic() - begin < LIMIT_S:
        for message in reader.consume(OFFERED_AT_ONCE, 0.5):
            if message.error():
                raise KafkaException(message.error())
            read += 1
    seconds = time.monotonic() - begin
    reader.close()
    print(read, f"{seconds:.4f}")


def first(topic, groups):
    for _ in range(int(groups)):
        begin = time.monotonic()
        reader = consumer()
        reader.subscribe([topic])
        message = reader.poll(LIMIT_S)
        if message is None or message.error():
            raise SystemExit(f"no first record: {message and message.error()}")
        print(f"{(time.monotonic() - begin) * 1000:.3f}")
        reader.close()


if __name__ == "__main__":
    {
        "create": create,
        "delete": delete,
        "stored": lambda topic: print(stored(topic)),
        "produce": produce,
        "consume": consume,
        "first": first,
    }[sys.argv[2]](*sys.argv[3:])
