"""A broker for all tests, and topics of their own."""

import itertools

import ottla
import pytest

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker():
    with ottla.Broker(num_partitions=3) as broker:
        yield broker


@pytest.fixture
def name():
    """A name that no other test uses: for a topic, a group."""
    return f"t{next(_numbers)}"


@pytest.fixture
def topic(broker, name):
    """A topic of one partition."""
    broker.create_topic(name, 1)
    return name


@pytest.fixture
def producer(broker):
    with ottla.Producer(broker.address) as producer:
        yield producer


@pytest.fixture
def consumer(broker, name):
    """Makes consumers of the test's own group, that start at the beginning; closes them."""
    made = []

    def make(topics, **options):
        options = {"group": f"{name}-group", "start": "earliest", **options}
        made.append(ottla.Consumer(broker.address, topics=topics, **options))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close(timeout=100)


def given_time(story):
    """What a story comes to with times that are short, or so many times as long.

    A slow machine may not come to what it shall tell before they are over.
    """
    for times in (1, 4, 16):
        try:
            return story(times)
        except (AssertionError, ottla.Error):
            continue
    return story(64)


def until_known(producer, topic):
    """Sends until a record is stored: then the producer knows the topic."""
    known = False
    while not known:
        try:
            known = producer.send(topic, b"v").result(timeout=100).offset >= 0
        except ottla.DeliveryTimeoutError:
            continue  # its topic was not known in time


def take_batches(consumer, count, **options):
    """The batches of the next so many records."""
    batches = []
    for batch in consumer.batches(timeout=100, **options):
        batches.append(batch)
        if sum(map(len, batches)) >= count:
            break
    return batches


def take(consumer, count, timeout=100):
    """The next so many records."""
    records = []
    while len(records) < count:
        record = consumer.poll(timeout)
        assert record is not None, f"only {len(records)} of {count} records came"
        records.append(record)
    return records
