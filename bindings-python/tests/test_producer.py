"""Sending from threads."""

import threading
import time

import ottla
import pytest
from conftest import take, until_known


def test_fire_and_forget_records_arrive_in_order(producer, consumer, topic):
    for number in range(1000):
        producer.send(topic, b"%d" % number)
    producer.flush(timeout=20)
    records = take(consumer(topic), 1000)
    assert [int(record.value) for record in records] == list(range(1000))


def test_results_tell_where_records_are(producer, topic):
    sent = [producer.send(topic, b"v", key=b"k") for _ in range(10)]
    assert [one.result(timeout=10).offset for one in sent] == list(range(10))
    assert all(one.done() for one in sent)
    assert "@3" in repr(sent[3])


# By Kafka's Utils.murmur2 of the bytes in UTF-8, its highest bit cleared, among 12 partitions.
PLACES = [
    ("thingäöüÄÖÜ", 10),
    ("😀", 9),
    ("", 9),
    ("d26skop", 0),
    ("kafka", 4),
    (b"\x80\xff\x90", 7),
    (b"\xff\xfe\xfd\xfc", 7),
]


def test_a_key_chooses_the_partition_and_a_partition_wins(producer, broker, name):
    broker.create_topic(name, 12)
    for key, partition in PLACES:
        as_bytes = key.encode() if isinstance(key, str) else key
        for given in (key, as_bytes, bytearray(as_bytes)):
            assert producer.send(name, b"v", key=given).result(10).partition == partition
    report = producer.send_many(name, [(key, b"v") for key, _ in PLACES])
    assert report.partitions.tolist() == [partition for _, partition in PLACES]
    with pytest.raises(UnicodeEncodeError):
        producer.send(name, b"v", key="k\ud800")
    assert producer.send(name, b"v", key=b"kafka", partition=7).result(10).partition == 7


def test_send_many_reports_in_columns(producer, consumer, topic):
    records = [b"a", (b"k", b"b"), ottla.Record(b"c", headers={"h": b"1"}), None, "text"]
    report = producer.send_many(topic, records)
    assert report.ok and report.errors == {} and len(report) == 5
    assert report.offsets.tolist() == [0, 1, 2, 3, 4]
    assert report.partitions.tolist() == [0] * 5
    assert all(timestamp > 0 for timestamp in report.timestamps)
    assert report[1] == ottla.Delivery(topic, 0, 1, report.timestamps[1])
    assert report[-1].offset == 4
    for missing in (5, -6):
        with pytest.raises(IndexError):
            report[missing]
    read = take(consumer(topic), 5)
    assert [record.value for record in read] == [b"a", b"b", b"c", None, b"text"]
    assert read[1].key == b"k" and read[2].headers == [("h", b"1")]


def test_one_bad_record_does_not_keep_the_others_back(broker, topic):
    with ottla.Producer(broker.address, max_request_size=10_000) as producer:
        report = producer.send_many(topic, [b"a", b"x" * 20_000, b"b"])
        assert not report.ok
        assert report.offsets.tolist() == [0, -1, 1]
        assert list(report.errors) == [1]
        assert isinstance(report.errors[1], ottla.RecordTooLargeError)
        with pytest.raises(ottla.RecordTooLargeError):
            report[1]


def test_read_records_can_be_sent_on(producer, consumer, broker, topic, name):
    producer.send(topic, b"v", key=b"k", headers={"h": b"1"}, timestamp=77).result(10)
    read = take(consumer(topic), 1)
    broker.create_topic(f"{name}-copy", 1)
    assert producer.send_many(f"{name}-copy", read).ok
    copy = consumer(f"{name}-copy", group=f"{name}-other")
    (record,) = take(copy, 1)
    assert (record.key, record.value, record.timestamp) == (b"k", b"v", 77)
    assert record.headers == [("h", b"1")]


def test_many_more_records_than_memory_wait_for_room(broker, consumer, topic):
    with ottla.Producer(broker.address, buffer_memory=1 << 20, batch_size=16_384) as producer:
        value = b"x" * 1000
        for _ in range(5000):
            producer.send(topic, value)
        assert producer.send_many(topic, [value] * 5000).ok
    assert len(take(consumer(topic), 10_000)) == 10_000


def test_try_send_refuses_when_memory_is_used_up(topic):
    # Nobody listens, so nothing leaves.
    producer = ottla.Producer("127.0.0.1:1", buffer_memory=1 << 20, batch_size=16_384)
    with pytest.raises(ottla.BufferFullError) as full:
        for _ in range(3000):
            producer.try_send(topic, b"x" * 1000)
    assert full.value.retriable and "buffer.memory" in str(full.value)
    with pytest.raises(ottla.Error):
        producer.close(timeout=0.1)


def test_all_records_of_a_send_many_have_max_block_together(broker, name):
    broker.create_topic(name, 1)
    with ottla.Broker() as own:
        options = {"buffer_memory": 1 << 20, "batch_size": 16_384, "delivery_timeout": 600_000}
        producer = ottla.Producer(own.address, max_block=1000, **options)
        until_known(producer, name)
    # Of a known topic nothing is given up before its delivery's time: no room comes by itself.
    with pytest.raises(ottla.BufferFullError):
        while True:
            producer.try_send(name, b"x" * 1000)
    began = time.monotonic()
    report = producer.send_many(name, [b"x" * 1000] * 20_000)
    assert {type(error) for error in report.errors.values()} == {ottla.BufferFullError}
    assert len(report.errors) == 20_000 and report.errors[0].outcome == "NotSent"
    # With a time for each it takes five hours.
    assert time.monotonic() - began < 100
    with pytest.raises(ottla.Error):
        producer.close(timeout=0.1)


def test_many_threads_share_one_producer(producer, consumer, topic):
    def send(thread):
        for number in range(500):
            producer.send(topic, b"%d %d" % (thread, number))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    producer.flush(timeout=20)
    read = [tuple(map(int, record.value.split())) for record in take(consumer(topic), 2000)]
    for thread in range(4):
        assert [number for one, number in read if one == thread] == list(range(500))


def test_options_go_by_either_name_and_text_or_number(broker, consumer, topic):
    options = [
        {"linger_ms": 1, "compression_type": "lz4", "enable_idempotence": True},
        {"linger": 1.0, "compression": "lz4", "client_id": "x", "acks": 1},
        {"linger.ms": "1", "acks": "all"},
    ]
    for chosen in options:
        with ottla.Producer([broker.address], **chosen) as producer:
            producer.send(topic, b"v")
    assert len(take(consumer(topic), 3)) == 3


def test_every_codec_goes_out_and_in(broker, consumer, topic):
    levels = {"gzip": {"compression_gzip_level": 9}, "zstd": {"compression_zstd_level": -3}}
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    for codec in codecs:
        with ottla.Producer(broker.address, compression=codec, **levels.get(codec, {})) as producer:
            for number in range(50):
                producer.send(topic, f"{codec} {number} ".encode() * 30)
    sent = [f"{codec} {number} ".encode() * 30 for codec in codecs for number in range(50)]
    assert [record.value for record in take(consumer(topic), len(sent))] == sent


def test_acks_none_tells_no_offset(broker, topic):
    with ottla.Producer(broker.address, acks=0) as producer:
        assert producer.send(topic, b"v").result(10).offset == -1


def test_leaving_the_block_raises_for_what_nobody_asked_about(name):
    with pytest.raises(ottla.Error) as failed:
        with ottla.Producer("127.0.0.1:1", delivery_timeout=300, request_timeout=200) as producer:
            producer.send(name, b"v")
    assert failed.value.retriable


def test_a_close_without_a_time_goes_on_for_as_long_as_a_delivery_may():
    # What is sent shall be delivered or have failed for a reason of its own, and not by the close.
    with ottla.Producer("127.0.0.1:1", delivery_timeout=31_000) as producer:
        assert producer._close_timeout == 32
    # Kafka's rule: a delivery takes linger and a request at least; what is not set is lengthened.
    with ottla.Producer("127.0.0.1:1", request_timeout=200_000) as producer:
        assert producer._close_timeout > 201


def test_an_error_of_the_block_comes_first(name):
    with pytest.raises(KeyError) as raised:
        with ottla.Producer("127.0.0.1:1", delivery_timeout=300, request_timeout=200) as producer:
            producer.send(name, b"v")
            raise KeyError("mine")
    assert "closing the client" in raised.value.__notes__[0]
