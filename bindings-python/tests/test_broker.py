"""The embedded broker."""

import contextlib
import threading

import ottla
import pytest
from conftest import take


def test_topics_records_and_commits_outlive_a_restart(tmp_path):
    with ottla.Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=2)
        cluster = broker.cluster_id
        with ottla.Producer(broker.address) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=1).result(10)
        with ottla.Consumer(broker.address, group="g", topics="orders", start="earliest") as c:
            c.commit(take(c, 4)[-1])
    with ottla.Broker(data_dir=str(tmp_path / "data")) as broker:
        assert broker.cluster_id == cluster
        with ottla.Consumer(broker.address, group="g", topics="orders", start="earliest") as c:
            assert [record.value for record in take(c, 6)] == [b"%d" % n for n in range(4, 10)]


def test_a_folder_in_use_is_refused(tmp_path):
    with ottla.Broker(data_dir=tmp_path):
        with pytest.raises(ottla.BrokerError, match="in use"):
            ottla.Broker(data_dir=tmp_path).start()


def test_a_taken_address_is_refused(broker):
    with pytest.raises(ottla.BrokerError, match=broker.address):
        ottla.Broker(listen=broker.address).start()


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(ottla.InvalidOptionError, match=r"num\.partitions"):
        ottla.Broker(num_partition=3)
    with pytest.raises(ottla.InvalidOptionError, match="whole number"):
        ottla.Broker(num_partitions="many")


def test_its_life_has_a_beginning_and_an_end():
    broker = ottla.Broker()
    with pytest.raises(ottla.InvalidStateError, match="not started"):
        _ = broker.address
    broker.start()
    broker.start()
    assert broker.address.startswith("127.0.0.1:") and len(broker.cluster_id) == 22
    broker.stop()
    broker.stop()
    for call in (lambda: broker.address, broker.start, lambda: broker.create_topic("x")):
        with pytest.raises(ottla.ClosedError):
            call()


def test_a_topic_is_created_once(broker, name):
    broker.create_topic(name, partitions=2)
    with pytest.raises(ottla.BrokerError, match=name):
        broker.create_topic(name)
    with pytest.raises(ottla.BrokerError):
        broker.create_topic(f"{name}-other", partitions=0)


def test_two_brokers_in_one_process_do_not_meet():
    with ottla.Broker() as one, ottla.Broker() as two:
        assert one.cluster_id != two.cluster_id
        with ottla.Producer(one.address) as producer:
            assert producer.send("x", b"v").result(10).offset == 0
        with ottla.Producer(two.address) as producer:
            assert producer.send("x", b"v").result(10).offset == 0


def test_a_broker_that_stops_lets_its_clients_go():
    broker = ottla.Broker()
    broker.start()
    consumer = ottla.Consumer(broker.address, group="g", topics="x")

    def read():
        # However far it has come, it may tell that its broker is gone.
        with contextlib.suppress(ottla.Error):
            list(consumer)

    waiting = threading.Thread(target=read)
    waiting.start()
    broker.stop(timeout=60)
    with contextlib.suppress(ottla.Error):
        consumer.close(timeout=1)
    waiting.join(100)
    assert not waiting.is_alive()
