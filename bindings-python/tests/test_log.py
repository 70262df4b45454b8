"""The client's log lines in Python's logging."""

import logging
import time

import ottla
import pytest
from test_process import python

SETUP = """
    import logging, sys, threading, time, ottla
    seen = []

    class Keep(logging.Handler):
        def emit(self, record):
            seen.append(record)

    def until(condition):
        limit = time.monotonic() + 100
        while not condition():
            assert time.monotonic() < limit, seen
            time.sleep(0.01)

    def threads():
        return [thread.name for thread in threading.enumerate()]
"""


@pytest.fixture
def lines():
    """The records of the logger ``ottla`` from DEBUG on."""
    seen = []

    class Keep(logging.Handler):
        def emit(self, record):
            seen.append(record)

    handler, logger = Keep(), logging.getLogger("ottla")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield seen
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def until(condition):
    limit = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.01)


def test_lines_come_to_the_logger_of_their_part_with_level_time_and_place(lines):
    before = time.time()
    with ottla.Broker() as broker, ottla.Producer(broker.address) as producer:
        producer.send("lines", b"v").result(20)
        until(lambda: any(line.name == "ottla.client" for line in lines))
    started = next(line for line in lines if "broker started" in line.getMessage())
    connected = next(line for line in lines if line.name == "ottla.client")
    assert (started.name, started.levelno) == ("ottla.broker", logging.INFO)
    assert connected.levelno == logging.DEBUG
    assert connected.pathname.startswith("ottla::driver")
    for line in (started, connected):
        assert before - 1 <= line.created <= time.time()
        assert line.msecs == int(line.created * 1000) % 1000


def test_a_line_is_written_by_a_thread_of_pythons(lines):
    with ottla.Broker():
        until(lambda: lines)
    assert {line.threadName for line in lines} == {"ottla-log"}


def delivered(producer):
    try:
        return producer.send("there", b"v").result(100) is not None
    except ottla.Error:
        return False


def test_a_record_that_fails_is_told_by_the_producers_logger(lines):
    options = {"delivery_timeout": 300, "request_timeout": 200, "linger": 0, "max_block": 300}
    with ottla.Broker(auto_create_topics_enable=False) as broker:
        broker.create_topic("there", 1)
        producer = ottla.Producer(broker.address, **options)
        # A slow machine may not come to a connection in such a time.
        while not delivered(producer):
            continue
        broker.stop()
        with pytest.raises(ottla.Error):
            producer.send("there", b"v").result(20)
        until(lambda: any(line.name == "ottla.producer" for line in lines))
        producer.close(1)
    failed = next(line for line in lines if line.name == "ottla.producer")
    assert failed.levelno == logging.WARNING
    assert "records were not delivered" in failed.getMessage()


def test_without_a_handler_nothing_is_kept_started_or_shown():
    code = """
        import threading, ottla
        with ottla.Broker() as broker, ottla.Producer(broker.address) as producer:
            producer.send("x", b"v").result(20)
            names = [thread.name for thread in threading.enumerate()]
        print(names, ottla._ottla.take_log())
    """
    ended = python(code)
    assert (ended.stdout, ended.stderr) == ("['MainThread'] []\n", "")


def test_lines_below_the_loggers_level_are_not_kept():
    code = (
        SETUP
        + """
    logging.getLogger().addHandler(Keep())  # WARNING, as Python has it
    with ottla.Broker() as broker, ottla.Producer(broker.address) as producer:
        producer.send("x", b"v").result(20)
    print(seen, ottla._log._level)
    """
    )
    ended = python(code)
    assert (ended.stdout, ended.stderr) == ("[] 2\n", "")


def test_logging_may_be_set_up_after_the_client_is_made():
    code = (
        SETUP
        + """
    broker = ottla.Broker()
    logging.getLogger().addHandler(Keep())
    logging.getLogger("ottla").setLevel(logging.INFO)
    broker.start()
    until(lambda: seen)
    print(seen[0].name)
    broker.stop()
    """
    )
    ended = python(code)
    assert (ended.stdout, ended.stderr) == ("ottla.broker\n", "")


def test_lines_of_the_end_are_handed_on_before_the_interpreter_ends():
    code = """
        import logging, sys, ottla
        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
        options = {"delivery_timeout": 300, "request_timeout": 200, "linger": 0, "max_block": 300}
        ottla.Producer("127.0.0.1:1", **options)
        mine = ottla.Broker()
        mine.start()
        ottla.Producer(mine.address, acks=0)
    """
    ended = python(code)
    assert "ottla.broker broker started" in ended.stdout, ended.stderr
    assert "ottla.client acks is not all" in ended.stdout, ended.stderr
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_handler_may_use_a_client_itself():
    code = (
        SETUP
        + """
    class Sends(Keep):
        def emit(self, record):
            super().emit(record)
            producer.send("log", record.getMessage()).result(20)

    broker = ottla.Broker()
    broker.start()
    producer = ottla.Producer(broker.address)
    logging.getLogger("ottla").addHandler(Sends())
    logging.getLogger("ottla").setLevel(logging.INFO)
    other = ottla.Broker()
    other.start()
    until(lambda: any("broker started" in record.getMessage() for record in seen))
    with ottla.Consumer(broker.address, group="g", topics="log", start="earliest") as c:
        record = c.poll(20)
    print("started" in str(record.value))
    other.stop()
    """
    )
    ended = python(code)
    assert ended.stdout == "True\n", ended.stderr


def test_a_forked_child_has_lines_of_its_own():
    code = (
        SETUP
        + """
    import os
    logging.getLogger("ottla").addHandler(Keep())
    logging.getLogger("ottla").setLevel(logging.DEBUG)
    broker = ottla.Broker()
    broker.start()
    address = broker.address
    producer = ottla.Producer(address)
    producer.send("x", b"v").result(20)
    for _ in range(20):
        # Forked while the client's threads write lines.
        stop = threading.Event()
        def churn():
            while not stop.is_set():
                with ottla.Producer(address) as other:
                    other.send("x", b"v").result(20)
        thread = threading.Thread(target=churn)
        thread.start()
        child = os.fork()
        if child == 0:
            seen.clear()
            with ottla.Producer(address) as own:
                own.send("x", b"child").result(20)
            until(lambda: any("connected" in record.getMessage() for record in seen))
            os._exit(0 if "ottla-log" in threads() else 1)
        stop.set()
        thread.join()
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
    seen.clear()
    with ottla.Producer(address) as again:
        again.send("x", b"v").result(20)
    until(lambda: any("connected" in record.getMessage() for record in seen))
    print("well")
    """
    )
    ended = python(code)
    assert ended.stdout == "well\n", ended.stderr


def test_a_filter_that_raises_is_told_and_stops_no_other_line():
    code = (
        SETUP
        + """
    def refuse(record):
        raise RuntimeError("no")

    told = []
    threading.excepthook = told.append
    logging.getLogger("ottla.broker").addFilter(refuse)
    logging.getLogger("ottla").addHandler(Keep())
    logging.getLogger("ottla").setLevel(logging.DEBUG)
    with ottla.Broker() as broker, ottla.Producer(broker.address) as producer:
        producer.send("x", b"v").result(20)
        until(lambda: any(record.name == "ottla.client" for record in seen))
    print(told[0].exc_type.__name__)
    """
    )
    ended = python(code)
    assert ended.stdout == "RuntimeError\n", ended.stderr
