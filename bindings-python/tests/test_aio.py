"""The same clients within an event loop."""

import asyncio
import contextlib
import threading
import time

import ottla
import pytest
from conftest import given_time


def run(main):
    """Runs a test's coroutine, and fails if it hangs."""
    return asyncio.run(asyncio.wait_for(main, 200))


async def taken(consumer, count):
    records = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            return records


def consumer(broker, topic, **options):
    options = {"group": f"{topic}-group", "start": "earliest", **options}
    return ottla.AsyncConsumer(broker.address, topics=topic, **options)


def test_one_await_is_one_delivery(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            at = await producer.send(topic, b"v", key=b"k", headers={"h": b"1"}, timestamp=5)
            assert at == ottla.Delivery(topic, 0, 0, 5)
        async with consumer(broker, topic) as reader:
            (record,) = await taken(reader, 1)
            assert (record.key, record.value, record.headers) == (b"k", b"v", [("h", b"1")])

    run(main())


def test_many_awaited_together_keep_their_order(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            sends = [producer.send(topic, b"%d" % number) for number in range(2000)]
            deliveries = await asyncio.gather(*sends)
            assert [at.offset for at in deliveries] == list(range(2000))
            # What is known is told again, at once.
            assert (await sends[7]).offset == 7

    run(main())


def test_records_of_a_topic_not_known_yet_settle_too(broker, name):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            sends = [producer.send(name, b"v", key=b"%d" % number) for number in range(300)]
            deliveries = await asyncio.gather(*sends)
            assert {at.partition for at in deliveries} == {0, 1, 2}

    run(main())


def test_fire_and_forget_then_flush(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            for number in range(500):
                producer.send(topic, b"%d" % number)
            await producer.flush(timeout=20)
            async with consumer(broker, topic) as reader:
                records = await taken(reader, 500)
                assert [int(record.value) for record in records] == list(range(500))

    run(main())


def test_send_many_reports(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address, max_request_size=10_000) as producer:
            report = await producer.send_many(topic, [b"a", (b"k", b"b"), b"x" * 20_000, b"c"])
            assert report.done() and not report.ok
            assert report.offsets.tolist() == [0, 1, -1, 2]
            assert isinstance(report.errors[2], ottla.RecordTooLargeError)

    run(main())


def test_over_budget_sends_wait_in_order_and_the_loop_goes_on(broker, topic):
    async def main():
        options = {"buffer_memory": 1 << 20, "batch_size": 16_384}
        async with ottla.AsyncProducer(broker.address, **options) as producer:
            sends = [producer.send(topic, b"%04d" % number + b"x" * 1000) for number in range(4000)]
            deliveries = await asyncio.gather(*sends)
            assert [at.offset for at in deliveries] == list(range(4000))
            assert (await producer.send_many(topic, [b"x" * 1000] * 4000)).ok
            for _ in range(4000):
                try:
                    producer.try_send(topic, b"x" * 1000)
                except ottla.BufferFullError:
                    await producer.drain()
                    await producer.try_send(topic, b"x" * 1000)

    run(main())


def test_a_close_sends_what_waits_for_room(broker, topic):
    async def main():
        producer = ottla.AsyncProducer(broker.address, buffer_memory=1 << 20, batch_size=16_384)
        sends = [producer.send(topic, b"x" * 1000) for _ in range(4000)]
        await producer.close()
        assert [(await sending).offset for sending in sends] == list(range(4000))

    run(main())


def test_a_record_that_is_given_up_while_it_waits_for_room_is_not_sent(name):
    async def main():
        async with ottla.Broker(auto_create_topics_enable=False) as own:
            options = {"buffer_memory": 1 << 20, "max_block": 600_000, "delivery_timeout": 600_000}
            async with ottla.AsyncProducer(own.address, **options) as producer:
                taken_at_once = 0
                with pytest.raises(ottla.BufferFullError):
                    while True:
                        producer.try_send(name, b"x" * 1000)
                        taken_at_once += 1
                sends = [producer.send(name, b"x" * 1000) for _ in range(3)]

                async def wait(sending):
                    return await sending

                waiting = [asyncio.create_task(wait(sending)) for sending in sends]
                for _ in range(10):
                    await asyncio.sleep(0)
                # The one whose turn it is, and one behind it.
                for given_up in waiting[:2]:
                    given_up.cancel()
                own.create_topic(name, 1)
                assert (await waiting[2]).offset == taken_at_once
                assert all(given_up.cancelled() for given_up in waiting[:2])

    run(main())


def test_a_send_that_finds_no_room_in_time_fails(topic):
    async def main():
        options = {"buffer_memory": 1 << 20, "batch_size": 16_384}
        producer = ottla.AsyncProducer("127.0.0.1:1", **options, max_block=300)
        sends = [producer.send(topic, b"x" * 1000) for _ in range(2000)]
        # At about the same time what was taken gives up its room, since nobody knows its topic.
        with pytest.raises((ottla.BufferFullError, ottla.DeliveryTimeoutError)) as failed:
            await sends[-1]
        # As the core says it, whichever it is: with what became of the record.
        assert failed.value.outcome == "NotSent"
        assert not failed.value.maybe_stored
        # Whether one is left that nobody asks about is a matter of time.
        with contextlib.suppress(ottla.Error):
            await producer.close(timeout=0.1)
        # With more time there is no room for as long as the test takes.
        producer = ottla.AsyncProducer("127.0.0.1:1", **options, max_block=600_000)
        sends = [producer.send(topic, b"x" * 1000) for _ in range(2000)]
        with pytest.raises(ottla.BufferFullError):
            producer.try_send(topic, b"x" * 1000)
        with pytest.raises(ottla.Error):
            await producer.close(timeout=0.1)
        with pytest.raises(ottla.Error):
            await sends[-1]

    run(main())


def test_all_records_of_a_send_many_have_max_block_together(name):
    async def main():
        options = {"buffer_memory": 1 << 20, "batch_size": 16_384, "delivery_timeout": 600_000}
        async with ottla.Broker() as own:
            producer = ottla.AsyncProducer(own.address, max_block=1000, **options)
            known = False
            while not known:
                try:
                    known = (await producer.send(name, b"v")).offset >= 0
                except ottla.DeliveryTimeoutError:
                    continue  # its topic was not known in time
        # Of a known topic nothing is given up before its delivery's time: no room comes by itself.
        with pytest.raises(ottla.BufferFullError):
            while True:
                producer.try_send(name, b"x" * 1000)
        began = time.monotonic()
        sends = [producer.send(name, b"x" * 1000) for _ in range(1000)]
        for sending in sends:
            with pytest.raises(ottla.BufferFullError):
                await sending
        # Each has its own from its send on: one after the other they would take 17 minutes.
        assert time.monotonic() - began < 100
        began = time.monotonic()
        rows = [b"x" * 1000] * 10_000
        for report in await asyncio.gather(*[producer.send_many(name, rows) for _ in range(2)]):
            assert {type(error) for error in report.errors.values()} == {ottla.BufferFullError}
            assert len(report.errors) == 10_000
        # With a time for each it takes five hours.
        assert time.monotonic() - began < 100
        with pytest.raises(ottla.Error):
            await producer.close(timeout=0.1)

    run(main())


def test_no_more_waits_for_room_than_the_buffer_may_hold_or_16_mib(topic):
    async def main():
        options = {"buffer_memory": 1 << 20, "max_block": 600_000}
        for value, least, most in [(b"x" * 64_000, 258, 280), (b"", 16_384, 250_000)]:
            producer = ottla.AsyncProducer("127.0.0.1:1", **options)
            sends = []
            with pytest.raises(ottla.BufferFullError, match="others wait for room already"):
                while len(sends) < 300_000:
                    sends.append(producer.send(topic, value))
            assert least <= len(sends) <= most
            # What cannot be sent at all is refused at once all the same.
            with pytest.raises(TypeError):
                producer.send(topic, 5)
            with pytest.raises(ottla.RecordTooLargeError):
                producer.send(topic, b"x" * (2 << 20))
            with pytest.raises(ottla.Error):
                await producer.close(timeout=0.1)
            for sending in (sends[0], sends[-1]):
                with pytest.raises(ottla.Error):
                    await sending

    run(main())


def test_what_waits_for_room_is_sent_as_it_was(broker, topic):
    async def main():
        options = {"buffer_memory": 1 << 20, "batch_size": 16_384}
        async with ottla.AsyncProducer(broker.address, **options) as producer:
            value = bytearray(1000)
            sends = []
            for number in range(4000):
                value[:4] = number.to_bytes(4)
                sends.append(producer.send(topic, value, headers={"h": value}))
            assert [at.offset for at in await asyncio.gather(*sends)] == list(range(4000))
        async with consumer(broker, topic) as reader:
            records = await taken(reader, 4000)
            numbers = [int.from_bytes(record.value[:4]) for record in records]
            assert numbers == list(range(4000))
            assert all(record.headers == [("h", record.value)] for record in records)

    run(main())


def test_failures_are_raised_where_they_are_awaited(name):
    async def main(times):
        options = {"delivery_timeout": 300 * times, "request_timeout": 200 * times}
        async with ottla.AsyncProducer("127.0.0.1:1", **options) as producer:
            with pytest.raises(ottla.DeliveryTimeoutError) as failed:
                await producer.send(name, b"v")
            assert isinstance(failed.value, TimeoutError) and not failed.value.maybe_stored
            assert "127.0.0.1:1" in str(failed.value)

    given_time(lambda times: run(main(times)))


def test_what_nobody_awaited_is_raised_when_the_block_ends(name):
    async def main():
        options = {"delivery_timeout": 300, "request_timeout": 200}
        with pytest.raises(ottla.Error):
            async with ottla.AsyncProducer("127.0.0.1:1", **options) as producer:
                producer.send(name, b"v")

    run(main())


def test_batches_polls_and_commits(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            assert (await producer.send_many(topic, [b"%d" % n for n in range(20)])).ok
        async with consumer(broker, topic, auto_commit=False) as reader:
            values = []
            async for batch in reader.batches(max_records=6):
                values += batch.values()
                await reader.commit(batch)
                if len(values) >= 20:
                    break
            assert values == [b"%d" % n for n in range(20)]
            assert await reader.poll(timeout=0.1) is None
            assert reader.position(topic, 0) == 20
            reader.seek(topic, 0, 12)
            record = await reader.poll()
            assert record.offset == 12
            await reader.commit(record)
            assert reader.assignment() == [(topic, 0)]
            reader.pause([(topic, 0)])
            assert await reader.poll(timeout=0.2) is None
            reader.resume([(topic, 0)])
            assert (await reader.poll()).offset == 13
        async with consumer(broker, topic) as reader:
            assert (await reader.poll()).offset == 13

    run(main())


def test_a_commits_own_timeout_counts_and_not_the_options(name):
    async def main():
        async with ottla.Broker() as own:
            async with ottla.AsyncProducer(own.address) as producer:
                await producer.send(name, b"v")
            reader = consumer(own, name, auto_commit=False, api_timeout=1)
            (record,) = await taken(reader, 1)
        # Nobody can take it any more, so it is tried until the time is over.
        began = time.monotonic()
        with pytest.raises(ottla.TimeoutError):
            await reader.commit(record, timeout=0.5)
        assert time.monotonic() - began >= 0.5
        with contextlib.suppress(ottla.Error):
            await reader.close(timeout=0.1)

    run(main())


def test_a_cancelled_poll_loses_nothing(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            async with consumer(broker, topic) as reader:
                for number in range(30):
                    waiting = asyncio.create_task(reader.poll())
                    await asyncio.sleep(0.002 * (number % 5))
                    sent = producer.send(topic, b"%d" % number)
                    if number % 2:
                        await sent
                    waiting.cancel()
                    try:
                        record = await waiting
                    except asyncio.CancelledError:
                        record = await reader.poll()
                    assert int(record.value) == number

    run(main())


def test_reads_that_are_given_up_at_once_lose_nothing(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            async with consumer(broker, topic) as reader:
                for number in range(300):
                    producer.send(topic, b"%d" % number)
                seen = []
                while len(seen) < 300:
                    try:
                        record = await asyncio.wait_for(reader.poll(), 0.001)
                    except TimeoutError:
                        continue
                    seen.append(int(record.value))
                assert seen == list(range(300))

    run(main())


def test_a_close_may_come_at_any_moment_and_again(broker, topic, name, caplog):
    async def main():
        for turns in range(6):
            reader = consumer(broker, topic, group=f"{name}-{turns}")
            producer = ottla.AsyncProducer(broker.address)
            waiting = asyncio.create_task(reader.poll())
            for _ in range(turns):
                await asyncio.sleep(0.001 * turns)
            await asyncio.gather(reader.close(), producer.close())
            await asyncio.gather(reader.close(), producer.close())
            (told,) = await asyncio.gather(waiting, return_exceptions=True)
            assert told is None or isinstance(told, ottla.ClosedError)

            reader = consumer(broker, topic, group=f"{name}-{turns}")
            waiting = asyncio.create_task(reader.poll())
            for _ in range(turns):
                await asyncio.sleep(0.001 * turns)
            waiting.cancel()
            await reader.close()
            assert isinstance(
                (await asyncio.gather(waiting, return_exceptions=True))[0],
                asyncio.CancelledError,
            )
        # Nothing goes on behind what has ended.
        assert asyncio.all_tasks() == {asyncio.current_task()} | main_tasks

    async def outer():
        main_tasks.update(asyncio.all_tasks())
        await main()

    main_tasks = set()
    run(outer())
    # The loop tells of tasks that were destroyed, and of errors that nobody took.
    assert [line.message for line in caplog.records if line.name == "asyncio"] == []


def test_many_clients_close_in_time_when_their_broker_is_gone(name):
    async def main():
        async with ottla.Broker() as own:
            own.create_topic(name, 1)
            readers = [consumer(own, name, group=f"{name}-{n}") for n in range(30)]
            async with ottla.AsyncProducer(own.address) as producer:
                await producer.send(name, b"v")
            for reader in readers:
                assert (await reader.poll(timeout=20)).value == b"v"
        began = time.monotonic()
        closing = [reader.close(timeout=2.0) for reader in readers]
        for told in await asyncio.gather(*closing, return_exceptions=True):
            assert told is None or isinstance(told, ottla.Error)
        # One deadline for all, with room for a busy machine; each after the other takes 60 s.
        assert time.monotonic() - began < 50

    run(main())


def test_other_tasks_run_while_records_are_read(broker, topic):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            assert (await producer.send_many(topic, [b"x" * 100] * 5000)).ok
        ticks, batches, read = 0, 0, 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with consumer(broker, topic) as reader:
            before = ticks
            while read < 5000:
                batch = await reader.poll_batch(max_records=10, timeout=100)
                batches, read = batches + 1, read + len(batch)
        ticking.cancel()
        # The others' turn comes with each batch, also when that is there already.
        assert ticks - before >= batches

    run(main())


def test_closing_ends_the_iteration(broker, topic):
    async def main():
        reader = consumer(broker, topic)
        asyncio.get_running_loop().call_later(0.2, lambda: asyncio.ensure_future(reader.close()))
        assert [record async for record in reader] == []
        await reader.close()
        with pytest.raises(ottla.ClosedError):
            await reader.poll()

    run(main())


def test_a_client_stays_with_its_loop(broker, topic):
    producer = ottla.AsyncProducer(broker.address)

    async def send():
        return await producer.send(topic, b"v")

    run(send())

    async def again():
        with pytest.raises(ottla.InvalidStateError, match="another event loop"):
            await asyncio.gather(*[producer.send(topic, b"v") for _ in range(100)])

    run(again())
    producer._native.close(10)


def test_a_timeout_of_a_call_is_told(broker, topic):
    async def main():
        producer = ottla.AsyncProducer("127.0.0.1:1")
        producer.send(topic, b"v")
        with pytest.raises(ottla.TimeoutError, match=r"flush did not end within 0\.2 s"):
            await producer.flush(timeout=0.2)
        with pytest.raises(ottla.Error):
            await producer.close(timeout=0.1)
        await producer.close()

    run(main())


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_is_a_number_of_seconds_from_0_on(broker, topic, timeout):
    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            await producer.send(topic, b"v")
            async with consumer(broker, topic) as reader:
                calls = [producer.flush, producer.close]
                calls += [reader.poll, reader.poll_batch, reader.commit, reader.close]
                for call in calls:
                    with pytest.raises(ottla.InvalidArgumentError, match="seconds from 0 on"):
                        await call(timeout=timeout)
                with pytest.raises(ottla.InvalidArgumentError):
                    await anext(reader.batches(timeout=timeout))
                # Nothing was closed by it, nor left open at the interpreter's end.
                assert {producer._native, reader._native} <= set(ottla._process._open)
                assert (await producer.send(topic, b"v")).offset == 1
                await taken(reader, 2)

    run(main())


def test_two_members_share_partitions(broker, name):
    async def main():
        broker.create_topic(name, 4)
        seen = []

        async def read():
            async with consumer(broker, name) as reader:
                share = 0
                while len(seen) < 400:
                    record = await reader.poll(timeout=0.1)
                    if record is not None:
                        seen.append(record.value)
                        share += 1
                    elif len(reader.assignment()) == 2:
                        ready.set()
                return share

        ready = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            members = [group.create_task(read()) for _ in range(2)]
            await ready.wait()
            async with ottla.AsyncProducer(broker.address) as producer:
                assert (await producer.send_many(name, [b"%d" % n for n in range(400)])).ok
        assert len(set(seen)) == 400 and all(member.result() for member in members)

    run(main())


def test_no_thread_of_pythons_is_started(broker, topic):
    before = set(threading.enumerate())

    async def main():
        async with ottla.AsyncProducer(broker.address) as producer:
            await producer.send(topic, b"v")
            assert set(threading.enumerate()) <= before

    run(main())


def test_an_embedded_broker_serves_inside_async_with():
    async def main():
        async with ottla.Broker() as broker, ottla.AsyncProducer(broker.address) as producer:
            assert (await producer.send("orders", b"v")).offset == 0

    run(main())
