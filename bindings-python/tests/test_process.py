"""Threads, signals, forks and the end of the process."""

import contextlib
import subprocess
import sys
import textwrap
import threading

import ottla
import pytest


def python(code, *args, timeout=300, **options):
    """Runs a program in a process of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **options
    )


def counts_during(wait):
    """How often a second thread counted while the first was in `wait`."""
    counted, stop = 0, threading.Event()

    def count():
        nonlocal counted
        while not stop.is_set():
            counted += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = counted
    wait()
    during = counted - before
    stop.set()
    thread.join()
    return during


def test_a_second_thread_counts_while_the_first_waits():
    # Nobody listens, so each wait takes all of its time.
    producer = ottla.Producer("127.0.0.1:1")
    sent = producer.send("x", b"v")
    consumer = ottla.Consumer("127.0.0.1:1", group="g", topics="x")

    def until_told(call):
        with contextlib.suppress(ottla.Error):
            call(timeout=0.3)

    for call in (producer.flush, sent.result, consumer.poll):
        # Held, the interpreter would let the thread count a few times a wait at most.
        counted, waits = 0, 0
        while counted <= 1000 and waits < 40:
            counted += counts_during(lambda call=call: until_told(call))
            waits += 1
        assert counted > 1000
    producer.close(timeout=0.1)
    consumer.close(timeout=0.1)


WAITS = {
    "flush": "producer.flush()",
    "result": "sent.result()",
    "close": "producer.close()",
    "poll": "consumer.poll()",
    "iteration": "next(consumer)",
    "batches": "next(consumer.batches())",
    "room": "[producer.send('x', b'x' * 100_000) for _ in range(1000)]",
    "send_many": "producer.send_many('x', [b'x' * 100_000] * 1000)",
}


@pytest.mark.parametrize("wait", sorted(WAITS))
def test_ctrl_c_ends_a_wait_of_the_main_thread_at_once(wait):
    code = f"""
        import os, signal, threading, time, ottla
        # A shell starts what runs in the background with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        producer = ottla.Producer("127.0.0.1:1", buffer_memory=1 << 20, batch_size=16_384)
        sent = producer.send("x", b"v")
        consumer = ottla.Consumer("127.0.0.1:1", group="g", topics="x", start="earliest")
        pressed = []

        def press():
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        try:
            threading.Timer(0.5, press).start()
            while True:
                try:
                    {WAITS[wait]}
                except ottla.ConnectError:
                    pass  # a consumer tells, and goes on
        except KeyboardInterrupt:
            late = time.monotonic() - pressed[0]
            # Of its own no wait ends before 10 s, when a consumer tells what stands in its way.
            print("interrupted" if late < 8 else f"late by {{late}}", flush=True)
        os._exit(0)
    """
    ended = python(code)
    assert ended.stdout == "interrupted\n", ended.stderr


REFUSALS = {
    "no room": "full.try_send('x', value, headers=headers)",
    "closed": "closed.send('x', value, headers=headers)",
    "a value of no known type": "full.try_send('x', object(), headers=headers)",
    "a header of no known type": "full.try_send('x', value, headers=[*headers, ('c', 5)])",
    "in bulk": "closed.send_many('x', [ottla.Record(value, headers=headers)] * 3)[1]",
}


@pytest.mark.parametrize("refusal", sorted(REFUSALS))
def test_records_that_are_refused_leave_nothing_behind(refusal):
    code = f"""
        import os, ottla
        value, headers = b"x" * 1000, [("a", b"1" * 100), ("b", b"2" * 100)]
        options = dict(buffer_memory=1 << 20, batch_size=16_384, max_block=600_000)
        full = ottla.Producer("127.0.0.1:1", **options)
        closed = ottla.Producer("127.0.0.1:1")
        closed.close()
        try:
            while True:
                full.try_send("x", value)
        except ottla.BufferFullError:
            pass

        def refused(times):
            for _ in range(times):
                try:
                    {REFUSALS[refusal]}
                except (ottla.BufferFullError, ottla.ClosedError, TypeError):
                    continue
                raise SystemExit("taken")

        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        refused(20_000)
        before = resident()
        refused(50_000)
        grown = resident() - before
        print("flat" if grown < 2 << 20 else f"grew by {{grown}}", flush=True)
        os._exit(0)
    """
    ended = python(code)
    assert ended.stdout == "flat\n", ended.stdout + ended.stderr


def test_clients_that_are_dropped_without_close_disturb_nothing(broker, topic):
    code = """
        import faulthandler, gc, sys, threading, ottla
        faulthandler.enable()
        address, topic = sys.argv[1:]

        class Holder:
            pass

        def use(number):
            producer = ottla.Producer(address)
            consumer = ottla.Consumer(address, group=f"dropped{number}", topics=topic)
            producer.send(topic, b"v").result(20)
            consumer.poll(timeout=0)
            return producer, consumer

        for number in range(10):
            use(number)
            holder = Holder()
            holder.clients, holder.own = use(number + 10), holder
            del holder
            gc.collect()
            iterator = iter(use(number + 20)[1])
            del iterator
            thread = threading.Thread(target=use, args=(number + 30,))
            thread.start()
            thread.join()
        try:
            with ottla.Consumer(address, group="raised", topics=topic) as consumer:
                raise KeyError("mine")
        except KeyError:
            pass
        try:
            consumer.poll(timeout=1)
        except ottla.ClosedError:
            print("closed")
    """
    ended = python(code, broker.address, topic)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "closed\n", "")


def test_a_handler_that_raises_not_lets_the_wait_go_on():
    code = """
        import os, signal, threading, time, ottla
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        with ottla.Broker() as broker, ottla.Consumer(broker.address, group="g") as c:
            broker.create_topic("x")
            c.subscribe("x")
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            began = time.monotonic()
            told = c.poll(timeout=1.0)
            went_on = time.monotonic() - began >= 1.0
            while not seen:
                time.sleep(0.01)
            print(told, went_on, seen)
    """
    ended = python(code)
    assert ended.stdout == "None True [1]\n", ended.stderr


def test_a_program_that_ends_without_close_delivers_and_ends(broker, topic):
    code = """
        import sys, ottla
        producer = ottla.Producer(sys.argv[1])
        consumer = ottla.Consumer(sys.argv[1], group="left", topics=sys.argv[2])
        consumer.poll(timeout=0.1)
        for number in range(100):
            producer.send(sys.argv[2], b"%d" % number)
        mine = ottla.Broker()
        mine.start()
    """
    ended = python(code, broker.address, topic)
    assert (ended.returncode, ended.stderr) == (0, "")
    options = {"group": f"{topic}-g", "start": "earliest"}
    with ottla.Consumer(broker.address, topics=topic, **options) as reader:
        read = 0
        while read < 100:
            batch = reader.poll_batch(timeout=20)
            assert batch is not None
            read += len(batch)


def test_what_cannot_be_delivered_at_the_end_is_told_within_the_deadline():
    code = """
        import ottla
        producer = ottla.Producer("127.0.0.1:1")
        producer.send("x", b"v")
    """
    ended = python(code)
    assert ended.returncode == 0
    assert "at exit: a record was not delivered" in ended.stderr


def test_a_daemon_thread_that_waits_does_not_hold_the_end_up():
    code = """
        import threading, ottla
        consumer = ottla.Consumer("127.0.0.1:1", group="g", topics="x")
        threading.Thread(target=lambda: list(consumer.batches()), daemon=True).start()
        print("done")
    """
    ended = python(code)
    assert ended.returncode == 0 and ended.stdout == "done\n"


def test_a_forked_child_cannot_use_what_its_parent_made(broker, topic):
    code = """
        import os, sys, ottla
        producer = ottla.Producer(sys.argv[1])
        sent = producer.send(sys.argv[2], b"parent")
        sent.result(10)
        child = os.fork()
        if child == 0:
            told = []
            for call in (lambda: producer.send(sys.argv[2], b"x"), producer.flush, sent.result):
                try:
                    call()
                except ottla.ForkedError as error:
                    told.append(str(error))
            producer.close()
            del producer, sent
            with ottla.Producer(sys.argv[1]) as own:
                at = own.send(sys.argv[2], b"child").result(10)
            ok = len(told) == 3 and "fork" in told[0] and at.offset == 1
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
        at = producer.send(sys.argv[2], b"parent again").result(10)
        producer.close()
        print(os.waitstatus_to_exitcode(status), at.offset)
    """
    ended = python(code, broker.address, topic)
    assert ended.stdout == "0 2\n", ended.stderr


def test_importing_starts_no_thread_and_opens_nothing():
    code = """
        import os
        before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        import ottla
        ottla.Producer("localhost:1"), ottla.Consumer("localhost:1", group="g"), ottla.Broker()
        after = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        print(before == after, before, after)
    """
    ended = python(code)
    assert ended.stdout.startswith("True"), ended.stdout + ended.stderr
