"""confluent-kafka against a broker: groups, idempotence, codecs. Usage: SCRIPT HOST:PORT."""

import collections
import sys
import time
import traceback

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = sys.argv[1]
RECORDS = 3000
PARTITIONS = 4
LIMIT_S = 30


def produce(topic, count, **options):
    """Sends `count` keyed records and gives each one's (partition, offset), by value."""
    placed, failed = {}, []
    producer = Producer({"bootstrap.servers": BOOTSTRAP, **options})

    def report(error, message):
        if error is not None:
            failed.append(error)
        else:
            placed[message.value()] = (message.partition(), message.offset())

    for number in range(count):
        value = b"%s-%d" % (topic.encode(), number)
        headers = [("number", b"%d" % number), ("empty", None)]
        while True:
            try:
                producer.produce(
                    topic, value, key=b"key-%d" % (number % 53), headers=headers, on_delivery=report
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    left = producer.flush(LIMIT_S)
    assert left == 0, f"{left} records not delivered"
    assert not failed, failed[0]
    assert len(placed) == count, f"{len(placed)} of {count} delivered"
    assert len(set(placed.values())) == count, "an offset was given twice"
    return placed


def member(group, **options):
    return Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **options,
        }
    )


def read(consumers, count):
    """Reads `count` records through these members of one group, in turn."""
    records = []
    deadline = time.monotonic() + LIMIT_S
    while len(records) < count and time.monotonic() < deadline:
        for consumer in consumers:
            for message in consumer.consume(500, 0.1):
                if message.error():
                    raise KafkaException(message.error())
                records.append(message)
    assert len(records) == count, f"{len(records)} of {count} read"
    return records


def create(topic):
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(LIMIT_S)
    found = admin.list_topics(topic, timeout=LIMIT_S).topics[topic]
    assert len(found.partitions) == PARTITIONS, found.partitions


def creates_a_topic():
    create("made")


def produces_and_consumes_with_headers_and_offsets():
    create("plain")
    placed = produce("plain", RECORDS, **{"enable.idempotence": False})
    consumer = member("plain-readers")
    consumer.subscribe(["plain"])
    for message in read([consumer], RECORDS):
        value = message.value()
        assert placed[value] == (message.partition(), message.offset()), value
        number = value.rpartition(b"-")[2]
        assert message.headers() == [("number", number), ("empty", None)], message.headers()
        assert message.key() == b"key-%d" % (int(number) % 53), message.key()
    consumer.close()


def produces_idempotently_in_order():
    create("idempotent")
    placed = produce("idempotent", RECORDS, **{"enable.idempotence": True})
    last = collections.defaultdict(lambda: -1)
    for partition, offset in placed.values():
        assert offset > last[partition], "out of order"
        last[partition] = offset
    assert sum(offset + 1 for offset in last.values()) == RECORDS, "a gap or a duplicate"


def compresses_with_lz4():
    create("lz4")
    placed = produce("lz4", RECORDS, **{"compression.type": "lz4"})
    consumer = member("lz4-readers")
    consumer.subscribe(["lz4"])
    assert {message.value() for message in read([consumer], RECORDS)} == set(placed)
    consumer.close()


def shares_a_topic_between_two_members():
    create("shared")
    members = [member("sharers"), member("sharers")]
    for consumer in members:
        consumer.subscribe(["shared"])
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        early = [message for consumer in members for message in consumer.consume(1, 0.1)]
        assert not early, "a record before any was sent"
        if [len(consumer.assignment()) for consumer in members] == [2, 2]:
            break
    assert [len(consumer.assignment()) for consumer in members] == [2, 2], "not shared evenly"
    placed = produce("shared", RECORDS)
    assert {message.value() for message in read(members, RECORDS)} == set(placed)
    for consumer in members:
        consumer.close()


def goes_on_where_it_committed():
    create("committed")
    produce("committed", 100)
    first = member("committers")
    first.subscribe(["committed"])
    read([first], 100)
    first.commit(asynchronous=False)
    places = [TopicPartition("committed", number) for number in range(PARTITIONS)]
    stored = sum(max(place.offset, 0) for place in first.committed(places, timeout=LIMIT_S))
    assert stored == 100, f"{stored} committed"
    first.close()
    more = produce("committed", 50)
    # A producer starts its values anew, so the old offsets tell the new records apart.
    second = member("committers")
    second.subscribe(["committed"])
    for message in read([second], 50):
        assert more[message.value()] == (message.partition(), message.offset())
    second.close()


def looks_up_offsets():
    create("offsets")
    produce("offsets", 200)
    consumer = member("nobody")
    ends = 0
    for number in range(PARTITIONS):
        place = TopicPartition("offsets", number)
        low, high = consumer.get_watermark_offsets(place, timeout=LIMIT_S)
        assert low == 0, low
        ends += high
    assert ends == 200, ends
    consumer.close()


CASES = [
    creates_a_topic,
    produces_and_consumes_with_headers_and_offsets,
    produces_idempotently_in_order,
    compresses_with_lz4,
    shares_a_topic_between_two_members,
    goes_on_where_it_committed,
    looks_up_offsets,
]


def main():
    passed = 0
    for case in CASES:
        name = "confluent-kafka " + case.__name__.replace("_", " ")
        begin = time.monotonic()
        try:
            case()
        except Exception:
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok      {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    print(f"{passed} passed, {len(CASES) - passed} failed")
    return 0 if passed == len(CASES) else 1


if __name__ == "__main__":
    sys.exit(main())
