"""What a program is told when something is wrong."""

import builtins
import contextlib
import pickle
import socket

import ottla
import pytest
from conftest import given_time, take, until_known


@pytest.mark.parametrize("client", [ottla.Producer, ottla.Consumer, ottla.AsyncProducer])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"linger_sm": 5}, "did you mean `linger.ms`"),
        ({"compresion": "lz4"}, "did you mean `compression.type`"),
        ({"linger_ms": "soon"}, "whole number of milliseconds"),
        ({"linger_ms": 5.5}, "whole number of milliseconds"),
        ({"acks": 2}, "one of all"),
        ({"enable_idempotence": "perhaps"}, "true or false"),
        ({"linger_ms": object()}, "takes a text, a number, a bool or a list of texts, not object"),
    ],
)
def test_a_bad_option_is_refused_when_the_client_is_made(client, options, told):
    with pytest.raises(ottla.InvalidOptionError, match=told) as refused:
        client("localhost:9092", **options)
    assert isinstance(refused.value, ValueError) and isinstance(refused.value, ottla.UsageError)
    assert not refused.value.retriable
    # It is about no record, and nobody was asked.
    told = refused.value
    assert (told.outcome, told.broker, told.api, told.attempt) == (None, None, None, None)


@pytest.mark.parametrize("address", ["localhost", "localhost:x", "a b:1", "", 5])
def test_a_bad_address_is_refused(address):
    with pytest.raises(ottla.InvalidOptionError, match=r"bootstrap\.servers"):
        ottla.Producer(address)


def test_without_an_address_there_is_no_client():
    with pytest.raises(ottla.InvalidOptionError, match=r"bootstrap\.servers"):
        ottla.Producer()


def test_a_consumer_needs_a_group_to_subscribe():
    with pytest.raises(ottla.InvalidGroupError, match=r"group\.id"):
        ottla.Consumer("localhost:9092", topics="orders")


def test_a_report_can_be_asked_while_its_errors_are_made(producer, topic, monkeypatch):
    # What is run then is anybody's: a class, a finaliser, another thread.
    seen = []

    class Asking(ottla.InvalidTimestampError):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append(len(report))

    report = producer.send_many(topic, [ottla.Record(b"v", timestamp=-1), b"w"])
    report.wait(100)
    monkeypatch.setitem(ottla._errors.BY_NUMBER, Asking.number, Asking)
    assert isinstance(report.errors[0], Asking)
    with pytest.raises(Asking):
        report[0]
    assert seen == [2, 2]


def test_nobody_listening_is_told_with_the_address():
    # It is taken, so that nobody else will ever listen there.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        given_time(lambda times: nobody_listening_is_told(address, times))


def nobody_listening_is_told(address, times):
    options = {"delivery_timeout": 400 * times, "request_timeout": 300 * times}
    producer = ottla.Producer(address, **options)
    sent = producer.send("orders", b"v")
    with pytest.raises(ottla.DeliveryTimeoutError, match=address) as failed:
        sent.result(timeout=60)
    assert isinstance(failed.value, builtins.TimeoutError)
    assert failed.value.retriable and not failed.value.maybe_stored
    assert failed.value.topic == "orders"
    assert failed.value.outcome == "NotSent"
    producer.close(5)


def test_a_consumer_that_finds_nobody_tells_which_broker_it_was():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        consumer = ottla.Consumer(address, group="g", topics="orders")
        with pytest.raises(ottla.ConnectError) as failed:
            while consumer.poll(timeout=1) is None:
                pass
        assert address in failed.value.broker and failed.value.outcome is None
        with contextlib.suppress(ottla.Error):
            consumer.close(timeout=0.1)


def test_a_record_that_is_not_delivered_in_time_tells_its_place_and_how_often_it_was_tried(name):
    with ottla.Broker() as broker:
        producer = ottla.Producer(broker.address, delivery_timeout=1500, request_timeout=1000)
        until_known(producer, name)
    with pytest.raises(ottla.DeliveryTimeoutError) as failed:
        producer.send(name, b"v").result(timeout=100)
    told = failed.value
    assert (told.topic, told.partition) == (name, 0)
    assert f"attempt {told.attempt} after" in str(told)
    producer.close(5)


def test_a_result_that_takes_too_long_stays_on_its_way():
    producer = ottla.Producer("127.0.0.1:1", max_block=600_000, delivery_timeout=600_000)
    sent = producer.send("orders", b"v")
    with pytest.raises(ottla.TimeoutError, match=r"within 0\.05 s"):
        sent.result(timeout=0.05)
    assert not sent.done()
    with pytest.raises(ottla.TimeoutError):
        producer.flush(timeout=0.05)
    assert not sent.done()
    # It is the producer's end that ends it, and its holder is the one who is told.
    producer.close(timeout=0.1)
    with pytest.raises(ottla.Error) as failed:
        sent.result(timeout=20)
    assert not isinstance(failed.value, ottla.TimeoutError) and not failed.value.maybe_stored


def test_an_unknown_topic_is_told_when_it_may_not_be_created(name):
    def told(broker, times):
        options = {"max_block": 500 * times, "delivery_timeout": 1000 * times}
        with ottla.Producer(broker.address, request_timeout=400 * times, **options) as producer:
            with pytest.raises(ottla.UnknownTopicError, match=name) as failed:
                producer.send(name, b"v").result(timeout=60)
            assert failed.value.kafka_code in (3, None)

    with ottla.Broker(auto_create_topics_enable=False) as broker:
        given_time(lambda times: told(broker, times))
        with ottla.Consumer(broker.address, group="g", topics=name) as consumer:
            with pytest.raises(ottla.UnknownTopicError, match=name):
                while consumer.poll(timeout=1) is None:
                    pass


def test_a_record_too_large_is_refused_in_send(broker, topic):
    with ottla.Producer(broker.address, max_request_size=1000) as producer:
        with pytest.raises(ottla.RecordTooLargeError):
            producer.send(topic, b"x" * 2000)
        # Nothing was kept of it, so the block ends without an error.
        producer.send(topic, b"fits").result(10)


def test_a_record_too_large_for_the_broker_is_told(topic):
    with ottla.Broker(message_max_bytes=2000) as broker:
        producer = ottla.Producer(broker.address)
        with pytest.raises(ottla.RecordTooLargeError) as refused:
            producer.send(topic, b"x" * 5000).result(20)
        told = refused.value
        assert told.kafka_code == 10 and not told.maybe_stored
        assert (told.outcome, told.api) == ("Rejected", "Produce")
        producer.close(5)


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250])
def test_names_no_topic_can_have(producer, consumer, name):
    with pytest.raises(ottla.InvalidTopicError):
        producer.send(name, b"v")
    with pytest.raises(ottla.InvalidTopicError):
        consumer(name)


def test_a_partition_that_is_not_there(producer, topic):
    producer.send(topic, b"v").result(10)
    with pytest.raises(ottla.InvalidPartitionError):
        producer.send(topic, b"v", partition=5).result(10)
    with pytest.raises(ottla.InvalidPartitionError):
        producer.send(topic, b"v", partition=-1)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_is_a_number_of_seconds_from_0_on(producer, consumer, topic, timeout):
    reader, sent = consumer(topic), producer.send(topic, b"v")
    report = producer.send_many(topic, [b"v"])
    # Also where nothing has to be waited for.
    sent.result(timeout=20)
    calls = [producer.flush, producer.close, sent.result, report.wait]
    calls += [reader.poll, reader.poll_batch, reader.commit, reader.close, ottla.Broker().stop]
    for call in calls:
        with pytest.raises(ottla.InvalidArgumentError, match="seconds from 0 on") as refused:
            call(timeout=timeout)
        assert isinstance(refused.value, ValueError)
    # Nothing was closed by it, nor left open at the interpreter's end.
    assert {producer, reader} <= set(ottla._process._open)
    assert producer.send(topic, b"v").result(timeout=20).offset == 2
    assert take(reader, 1)[0].offset == 0
    # Also where the next record is at hand already.
    with pytest.raises(ottla.InvalidArgumentError, match="seconds from 0 on"):
        reader.poll(timeout=timeout)
    assert take(reader, 1)[0].offset == 1


def test_values_of_other_types_are_refused(producer, topic):
    with pytest.raises(TypeError, match="not int"):
        producer.send(topic, 5)
    with pytest.raises(TypeError, match=r"\(key, value\)"):
        producer.send_many(topic, [(b"a", b"b", b"c")])
    with pytest.raises(TypeError):
        producer.send_many(topic, 5)
    for one in ("abc", b"abc"):
        with pytest.raises(TypeError, match="a list or another iterable, not"):
            producer.send_many(topic, one)


def test_a_closed_client_says_so_and_closes_again(broker, topic):
    producer = ottla.Producer(broker.address)
    sent = producer.send(topic, b"v")
    producer.close(10)
    assert sent.result(0).offset == 0
    for call in (
        lambda: producer.send(topic, b"v"),
        lambda: producer.try_send(topic, b"v"),
    ):
        with pytest.raises(ottla.ClosedError):
            call()
    report = producer.send_many(topic, [b"v"])
    assert isinstance(report.errors[0], ottla.ClosedError)
    producer.flush()
    producer.close()
    reader = ottla.Consumer(broker.address, group=f"{topic}-g", topics=topic)
    reader.close(10)
    for call in (reader.poll, reader.commit, lambda: reader.subscribe("x"), reader.poll_batch):
        with pytest.raises(ottla.ClosedError):
            call()
    assert reader.assignment() == []
    reader.close()


def test_a_client_never_used_closes_at_once():
    ottla.Producer("localhost:1").close()
    ottla.Consumer("localhost:1", group="g").close()


def test_classes_tell_what_can_be_done():
    assert issubclass(ottla.Error, Exception)
    for name in ("RetriableError", "AbortableError", "FatalError", "UsageError"):
        assert issubclass(getattr(ottla, name), ottla.Error)
    kinds = [getattr(ottla, name) for name in ottla.__all__ if name.endswith("Error")]
    kinds = [kind for kind in kinds if kind.kind]
    assert len(kinds) > 40
    for kind in kinds:
        assert kind.__name__ == f"{kind.kind}Error" and kind.__doc__
        assert kind.retriable == issubclass(kind, ottla.RetriableError)


def test_errors_are_pickled(topic):
    producer = ottla.Producer("127.0.0.1:1", delivery_timeout=300, request_timeout=200)
    with pytest.raises(ottla.Error) as failed:
        producer.send(topic, b"v").result(10)
    producer.close(5)
    copy = pickle.loads(pickle.dumps(failed.value))
    assert type(copy) is type(failed.value) and str(copy) == str(failed.value)
    assert copy.topic == topic and copy.outcome == failed.value.outcome is not None
