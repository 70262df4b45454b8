"""Reading as a member of a group, from threads."""

import collections
import contextlib
import threading
import time

import ottla
import pytest
from conftest import take, take_batches


def fill(producer, topic, count, **more):
    assert producer.send_many(topic, [b"%d" % number for number in range(count)], **more).ok


def test_iteration_gives_records_in_order(producer, consumer, topic):
    fill(producer, topic, 100)
    seen = []
    for record in consumer(topic):
        seen.append(int(record.value))
        if len(seen) == 100:
            break
    assert seen == list(range(100))


def test_poll_gives_nothing_when_the_time_is_over(consumer, topic):
    assert consumer(topic).poll(timeout=0.2) is None
    assert consumer(topic).poll_batch(timeout=0) is None


def test_batches_give_lazy_records_and_columns(producer, consumer, topic):
    report = producer.send_many(topic, [(b"k%d" % n, b"v%d" % n) for n in range(50)])
    assert report.ok
    batches = take_batches(consumer(topic), 50)
    assert sum(map(len, batches)) == 50
    batch = batches[0]
    assert (batch.topic, batch.partition, batch.base_offset) == (topic, 0, 0)
    assert batches[-1].last_offset == 49 and batches[-1].next_offset == 50
    assert batch.values()[:2] == [b"v0", b"v1"] and batch.keys()[:2] == [b"k0", b"k1"]
    assert batch.offsets.tolist() == [record.offset for record in batch]
    assert batch.offsets.format == "q" and batch.offsets.readonly
    assert batch.timestamps.tolist() == [record.timestamp for record in batch]
    assert batch[0].value == b"v0" and batch[-1].offset == batch.last_offset
    assert batch[1:5:2] == [batch[1], batch[3]] and batch[:] == list(batch)
    assert batch[::-1] == list(reversed(batch)) and batch[len(batch) :] == []
    for missing in (len(batch), -len(batch) - 1):
        with pytest.raises(IndexError):
            batch[missing]
    with pytest.raises(TypeError):
        batch["0"]
    assert f"{topic}-0" in repr(batch)


def test_max_records_caps_batches_for_the_call(producer, consumer, topic):
    fill(producer, topic, 10)
    reader = consumer(topic)
    sizes = [len(batch) for batch in take_batches(reader, 10, max_records=4)]
    assert sum(sizes) == 10 and max(sizes) <= 4
    with pytest.raises(ottla.InvalidArgumentError):
        reader.poll_batch(max_records=0)


def test_records_outlive_their_consumer(producer, consumer, topic):
    fill(producer, topic, 3)
    reader = consumer(topic)
    batches = take_batches(reader, 3)
    records = [record for batch in batches for record in batch]
    reader.close(10)
    del batches
    assert [record.value for record in records] == [b"0", b"1", b"2"]


def test_two_members_share_the_partitions_and_read_each_record_once(
    producer, broker, consumer, name
):
    broker.create_topic(name, 4)
    total = 2000
    seen, lock, enough = collections.Counter(), threading.Lock(), threading.Event()
    shares = [0, 0]
    readers = [consumer(name) for _ in range(2)]

    def read(member):
        while not enough.is_set():
            record = readers[member].poll(timeout=0.1)
            if record is not None:
                with lock:
                    seen[record.value] += 1
                    shares[member] += 1
                    if sum(seen.values()) >= total:
                        enough.set()

    threads = [threading.Thread(target=read, args=(member,), daemon=True) for member in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 100
    while not all(len(reader.assignment()) == 2 for reader in readers):
        assert not enough.wait(0.02) and time.monotonic() < until
    fill(producer, name, total)
    assert enough.wait(100)
    for thread in threads:
        thread.join()
    assert len(seen) == total and set(seen.values()) == {1}
    assert min(shares) > 0
    ours = [partition for reader in readers for partition in reader.assignment()]
    assert sorted(ours) == [ottla.TopicPartition(name, number) for number in range(4)]


@pytest.mark.parametrize("what", ["record", "batch", "offsets", "nothing"])
def test_the_group_goes_on_behind_what_was_committed(producer, consumer, topic, what):
    fill(producer, topic, 10)
    reader = consumer(topic, auto_commit=False)
    if what == "batch":
        reader.commit(reader.poll_batch(max_records=4, timeout=20))
    else:
        records = take(reader, 4)
        if what == "record":
            reader.commit(records[-1])
        elif what == "offsets":
            reader.commit({(topic, 0): 4}, timeout=20)
        else:
            reader.commit()
    reader.close(10)
    (record,) = take(consumer(topic), 1)
    assert record.offset == 4


def test_a_commits_own_timeout_counts_and_not_the_options(name):
    with ottla.Broker() as broker:
        with ottla.Producer(broker.address) as producer:
            producer.send(name, b"v")
        options = {"group": name, "start": "earliest", "auto_commit": False, "api_timeout": 1}
        reader = ottla.Consumer(broker.address, topics=name, **options)
        (record,) = take(reader, 1)
    # Nobody can take it any more, so it is tried until the time is over.
    began = time.monotonic()
    with pytest.raises(ottla.TimeoutError):
        reader.commit(record, timeout=0.5)
    assert time.monotonic() - began >= 0.5
    with pytest.raises(ottla.TimeoutError):
        reader.commit(record)
    with contextlib.suppress(ottla.Error):
        reader.close(timeout=0.1)


@pytest.mark.parametrize("what", ["record", "batch"])
def test_records_finished_in_any_order_do_not_come_again(producer, consumer, topic, what):
    fill(producer, topic, 10)
    reader = consumer(topic, auto_commit=False, acknowledgement="explicit")
    records = take(reader, 2) if what == "batch" else take(reader, 10)
    if what == "batch":
        reader.acknowledge(reader.poll_batch(max_records=20, timeout=20))
        finished = range(2, 10)
    else:
        finished = [7, 2, 3]
        for offset in finished:
            reader.acknowledge(records[offset])
    reader.commit()
    reader.close(10)
    with pytest.raises(ottla.ClosedError):
        reader.acknowledge(records[0])
    fill(producer, topic, 1)
    left = [offset for offset in range(11) if offset not in finished]
    again = consumer(topic, acknowledgement="explicit")
    assert [record.offset for record in take(again, len(left))] == left


def test_what_cannot_be_acknowledged_is_told(producer, consumer, topic):
    fill(producer, topic, 1)
    reader = consumer(topic)
    (record,) = take(reader, 1)
    with pytest.raises(ottla.InvalidStateError, match="implicit"):
        reader.acknowledge(record)
    with pytest.raises(TypeError, match="acknowledge a Record or a Batch, not int"):
        reader.acknowledge(5)
    with pytest.raises(TypeError, match="not read by this consumer"):
        reader.acknowledge(ottla.Record(b"v"))


def test_commit_soon_is_done_when_the_consumer_is_closed(producer, consumer, topic):
    fill(producer, topic, 10)
    reader = consumer(topic, auto_commit=False)
    for record in take(reader, 6):
        reader.commit_soon(record)
    reader.close(10)
    (record,) = take(consumer(topic), 1)
    assert record.offset == 6


def test_auto_commit_counts_only_what_the_loop_went_past(producer, consumer, topic):
    fill(producer, topic, 10)
    reader = consumer(topic)
    with pytest.raises(RuntimeError), reader:
        for record in reader:
            if record.offset == 5:
                raise RuntimeError("the handler fails")
    (record,) = take(consumer(topic), 1)
    assert record.offset == 5


def test_a_closed_group_member_lets_the_next_one_in_at_once(producer, consumer, topic):
    fill(producer, topic, 1)
    for _ in range(3):
        reader = consumer(topic, auto_commit=False)
        take(reader, 1)
        reader.close(10)


def test_seek_position_and_beginning_again(producer, consumer, topic):
    fill(producer, topic, 10)
    reader = consumer(topic)
    take(reader, 5)
    assert reader.position(topic, 0) == 5
    reader.seek(topic, 0, 2)
    assert reader.position(topic, 0) == 2
    assert [record.offset for record in take(reader, 3)] == [2, 3, 4]
    reader.seek(topic, 0, 9)
    assert [record.offset for record in take(reader, 1)] == [9]
    assert reader.position(topic, 5) is None
    with pytest.raises(ottla.NotAssignedError):
        reader.seek(topic, 5, 0)


def test_a_paused_partition_gives_nothing_until_it_is_resumed(producer, consumer, topic):
    fill(producer, topic, 10)
    reader = consumer(topic)
    take(reader, 1)
    reader.pause(reader.assignment())
    assert reader.poll(timeout=0.3) is None
    reader.resume([(topic, 0)])
    assert [record.offset for record in take(reader, 9)] == list(range(1, 10))
    with pytest.raises(ottla.NotAssignedError):
        reader.pause([("other", 0)])


def test_subscribe_replaces_the_topics(producer, broker, consumer, topic, name):
    broker.create_topic(f"{name}-2", 1)
    fill(producer, topic, 1)
    fill(producer, f"{name}-2", 1)
    reader = consumer(topic)
    take(reader, 1)
    reader.subscribe(f"{name}-2")
    (record,) = take(reader, 1)
    assert record.topic == f"{name}-2"
    assert reader.assignment() == [(f"{name}-2", 0)]


def test_closing_from_another_thread_ends_the_iteration(consumer, topic):
    reader = consumer(topic)
    threading.Timer(0.3, reader.close).start()
    assert list(reader) == []
    assert list(reader.batches()) == []


def test_what_cannot_be_committed_is_told(consumer, topic):
    reader = consumer(topic)
    with pytest.raises(TypeError, match="commit a Record, a Batch"):
        reader.commit(5)
    with pytest.raises(TypeError, match="was not read"):
        reader.commit(ottla.Record(b"v"))
