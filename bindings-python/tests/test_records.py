"""Records and deliveries as values."""

import copy
import pickle

import ottla
import pytest
from conftest import take


def test_a_record_takes_bytes_buffers_and_text():
    record = ottla.Record(
        bytearray(b"v"), key="käy", headers={"a": memoryview(b"1"), "b": None}, partition=2
    )
    assert (record.value, record.key, record.partition) == (b"v", "käy".encode(), 2)
    assert record.headers == [("a", b"1"), ("b", None)]
    assert record.topic is None and record.offset is None and record.timestamp is None


def test_null_and_empty_are_not_the_same():
    assert ottla.Record(None).value is None
    assert ottla.Record(b"").value == b""
    assert ottla.Record(b"v").key is None


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda: ottla.Record(5), "value must be bytes, a buffer, str or None, not int"),
        (lambda: ottla.Record(b"v", key=1.5), "key must be bytes"),
        (lambda: ottla.Record(b"v", headers=[b"x"]), "headers are a dict or"),
        (lambda: ottla.Record(b"v", headers={1: b"x"}), "name must be str, not int"),
        (lambda: ottla.Record(b"v", headers={"a": 1}), "a header's value must be bytes"),
    ],
)
def test_other_types_are_refused_with_the_part_and_the_type(bad, told):
    with pytest.raises(TypeError, match=told):
        bad()


def test_headers_keep_order_and_repeated_names(producer, consumer, topic):
    pairs = [("b", b"1"), ("a", None), ("b", b"")]
    producer.send(topic, b"v", headers=pairs).result(10)
    (record,) = take(consumer(topic), 1)
    assert record.headers == pairs


def test_all_fields_survive_the_journey(producer, consumer, topic):
    at = producer.send(topic, b"v", key=b"", headers={"h": "x"}, partition=0, timestamp=0).result(
        10
    )
    assert (at.topic, at.partition, at.offset, at.timestamp) == (topic, 0, 0, 0)
    (record,) = take(consumer(topic), 1)
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.timestamp) == (b"", b"v", 0)
    assert record.headers == [("h", b"x")]


def test_a_timestamp_of_none_is_now_and_a_value_of_none_is_null(producer, consumer, topic):
    at = producer.send(topic).result(10)
    (record,) = take(consumer(topic), 1)
    assert record.value is None and record.key is None
    assert record.timestamp == at.timestamp > 1_500_000_000_000


def test_records_are_pickled_compared_and_matched(producer, consumer, topic):
    producer.send(topic, b"v", key=b"k", headers={"h": b"1"}).result(10)
    (record,) = take(consumer(topic), 1)
    again = pickle.loads(pickle.dumps(record))
    assert again == record and hash(again) == hash(record)
    assert again.offset == 0 and again.headers == [("h", b"1")]
    assert again != ottla.Record(b"v", key=b"k")
    match record:
        case ottla.Record(matched, 0, 0, b"k", b"v"):
            assert matched == topic
        case _:
            pytest.fail("not matched")
    assert f"{topic}-0 @0" in repr(record) and "b'v'" in repr(record)


def test_a_copy_of_a_read_record_is_sent_and_committed_as_the_record_is(
    producer, consumer, broker, name
):
    broker.create_topic(name, 3)
    own = producer.send(name, b"v", key=b"k").result(10).partition
    elsewhere = (own + 1) % 3
    producer.send(name, b"w", key=b"k", partition=elsewhere).result(10)
    reader = consumer(name, auto_commit=False)
    (record,) = (found for found in take(reader, 2) if found.partition == elsewhere)
    copies = [record, pickle.loads(pickle.dumps(record)), copy.copy(record)]
    # Where it was read says nothing of where it goes: its key does.
    assert producer.send_many(name, copies).partitions.tolist() == [own] * 3
    # One that was made goes where it says, and so do its copies.
    made = ottla.Record(b"v", key=b"k", partition=elsewhere)
    made = [made, pickle.loads(pickle.dumps(made)), copy.copy(made)]
    assert producer.send_many(name, made).partitions.tolist() == [elsewhere] * 3
    reader.commit(copies[1])
    reader.close()
    reader = consumer(name, auto_commit=False)
    again = take(reader, 7)
    assert sorted(found.offset for found in again if found.partition == elsewhere) == [1, 2, 3]
    with pytest.raises(TypeError, match="was not read"):
        reader.commit(made[1])


def test_deliveries_are_pickled_compared_and_matched():
    at = ottla.Delivery("orders", 1, 2, 3)
    assert pickle.loads(pickle.dumps(at)) == at
    assert hash(at) == hash(ottla.Delivery("orders", 1, 2, 3))
    assert at != ottla.Delivery("orders", 1, 3, 3)
    match at:
        case ottla.Delivery(topic, partition, offset, timestamp):
            assert (topic, partition, offset, timestamp) == ("orders", 1, 2, 3)


def test_records_cannot_be_changed(topic):
    with pytest.raises(AttributeError):
        ottla.Record(b"v").value = b"w"


class Says(list):
    """A list whose length is what it says."""

    def __init__(self, records, length):
        super().__init__(records)
        self.length = length

    def __len__(self):
        if isinstance(self.length, int):
            return self.length
        raise self.length


def test_a_length_is_believed_in_no_further_than_its_records_go(producer, topic):
    report = producer.send_many(topic, Says([b"a", b"b"], 2**60))
    assert report.offsets.tolist() == [0, 1]
    # A generator has none.
    assert len(producer.send_many(topic, (value for value in [b"c"]))) == 1


def test_an_error_of_an_iterables_length_is_raised(producer, topic):
    with pytest.raises(ZeroDivisionError):
        producer.send_many(topic, Says([b"a"], ZeroDivisionError()))
