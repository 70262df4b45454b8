"""Partitions that a program chooses, where they begin and end, and what is kept beside offsets."""

import asyncio
import time

import ottla
import pytest
from conftest import given_time, take
from ottla import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

LOOKUPS = ["beginning_offsets", "end_offsets", "committed", "offsets_for_times"]


def fill(producer, topic, count, partition=0):
    """So many records, one a second from 1,000 s on."""
    for number in range(count):
        at = 1_000_000 + number * 1000
        producer.send(topic, b"%d" % number, partition=partition, timestamp=at)
    producer.flush(timeout=100)


def run(main):
    return asyncio.run(asyncio.wait_for(main, 200))


@pytest.fixture
def alone(broker):
    """A consumer of no group that starts at the beginning."""
    with ottla.Consumer(broker.address, start="earliest") as consumer:
        yield consumer


@pytest.fixture
def two(broker, producer, name):
    """A topic with ten records in its partition 0, and none in 1."""
    broker.create_topic(name, 2)
    fill(producer, name, 10)
    return name


def test_without_a_group_assigned_partitions_are_read_from_where_told(two, alone):
    alone.assign([(two, 0)])
    assert alone.assignment() == [TopicPartition(two, 0)]
    assert [record.offset for record in take(alone, 3)] == [0, 1, 2]
    alone.seek(two, 0, 8)
    assert [record.offset for record in take(alone, 2)] == [8, 9]
    for refused in (alone.commit, lambda: alone.committed([(two, 0)])):
        with pytest.raises(ottla.InvalidGroupError):
            refused()
    with pytest.raises(ottla.InvalidGroupError):
        alone.subscribe(two)
    alone.assign([])
    assert alone.assignment() == []


def test_with_a_group_assigned_partitions_are_read_from_what_it_committed(two, consumer):
    reader = consumer(None)
    reader.assign([(two, 0)])
    take(reader, 4)
    reader.commit()
    with pytest.raises(ottla.InvalidStateError):
        reader.subscribe(two)
    reader.close(100)
    again = consumer(None)
    again.assign([TopicPartition(two, 0)])
    assert [record.offset for record in take(again, 1)] == [4]


def test_beginnings_and_ends_are_those_of_each_partition(two, alone):
    both = [TopicPartition(two, 0), (two, 1)]
    assert alone.beginning_offsets(both) == {(two, 0): 0, (two, 1): 0}
    ends = alone.end_offsets(both, timeout=100)
    assert ends == {(two, 0): 10, (two, 1): 0}
    assert [partition.topic for partition in ends] == [two, two]
    assert alone.end_offsets([]) == {}


def test_a_time_stands_for_the_first_record_of_it_or_later(two, alone):
    found = alone.offsets_for_times({(two, 0): 1_004_500, (two, 1): 0})
    assert found[two, 0] == OffsetAndTimestamp(5, 1_005_000, found[two, 0].leader_epoch)
    assert found[two, 1] is None
    assert alone.offsets_for_times({(two, 0): 9_999_999_999_999}) == {(two, 0): None}
    with pytest.raises(ottla.InvalidArgumentError, match="-1 is no time"):
        alone.offsets_for_times({(two, 0): -1})


def test_what_is_not_there_is_told_when_the_calls_own_time_is_over(broker, name, two):
    with ottla.Consumer(broker.address, api_timeout=1) as reader:
        for unknown in ((f"{name}-none", 0), (two, 9)):
            began = time.monotonic()
            with pytest.raises(ottla.TimeoutError, match=unknown[0]):
                reader.end_offsets([unknown], timeout=0.3)
            with pytest.raises(ottla.TimeoutError):
                reader.offsets_for_times({unknown: 0}, timeout=0.3)
            assert time.monotonic() - began >= 0.6
            with pytest.raises(ottla.TimeoutError):
                reader.beginning_offsets([unknown])


@pytest.mark.parametrize("call", LOOKUPS)
def test_partitions_that_cannot_be_are_refused(name, consumer, call):
    reader = consumer(None)

    def ask(where):
        given = {where: 0} if call == "offsets_for_times" else [where]
        return getattr(reader, call)(given, timeout=100)

    with pytest.raises(ottla.InvalidPartitionError):
        ask((name, -1))
    with pytest.raises(ottla.InvalidTopicError):
        ask(("a/b", 0))
    for wrong in (5, (name, "0"), (name,), (name, 0.5)):
        with pytest.raises((TypeError, ValueError)):
            ask(wrong)
    reader.close()
    with pytest.raises(ottla.ClosedError):
        ask((name, 0))


def test_times_and_numbers_that_are_none_are_refused(two, alone):
    for wrong in (float("nan"), 1.5, "now", None):
        with pytest.raises(TypeError):
            alone.offsets_for_times({(two, 0): wrong})
    for timeout in (float("nan"), -1):
        with pytest.raises(ottla.InvalidArgumentError):
            alone.end_offsets([(two, 0)], timeout)
    with pytest.raises(OverflowError):
        alone.seek_before_end(two, 0, -1)
    with pytest.raises(ottla.InvalidPartitionError):
        alone.assign([(two, -1)])
    with pytest.raises(TypeError):
        alone.assign(two)
    with pytest.raises(TypeError):
        alone.subscribe_pattern(5)
    alone.close()
    with pytest.raises(ottla.ClosedError):
        alone.assign([(two, 0)])
    assert alone.current_lag(two, 0) is None
    alone.keep_alive()


def test_a_seek_before_the_end_goes_no_further_than_the_beginning(two, alone):
    alone.assign([(two, 0), (two, 1)])
    assert alone.seek_before_end(two, 0, 3) == 7
    assert [record.offset for record in take(alone, 3)] == [7, 8, 9]
    assert alone.seek_before_end(two, 0, 1 << 63) == 0
    assert alone.seek_before_end(two, 1, 5, timeout=100) == 0
    assert alone.position(two, 0) == 0
    alone.assign([(two, 1)])
    with pytest.raises(ottla.NotAssignedError):
        alone.seek_before_end(two, 0, 3)


def test_the_lag_falls_to_nothing_as_records_are_read(two, alone):
    assert alone.current_lag(two, 0) is None
    alone.assign([(two, 0)])
    take(alone, 1)
    assert alone.current_lag(two, 0) == 9
    take(alone, 9)
    assert alone.current_lag(two, 0) == 0


def test_a_pattern_reads_topics_that_come_later(broker, producer, consumer, name):
    broker.create_topic(f"{name}-a", 1)
    broker.create_topic(f"x{name}-a", 1)
    fill(producer, f"x{name}-a", 1)
    fill(producer, f"{name}-a", 1)
    reader = consumer(None, metadata_max_age=200)
    with pytest.raises(ottla.InvalidArgumentError, match="no pattern"):
        reader.subscribe_pattern("(")
    reader.subscribe_pattern(f"{name}-[ab]")
    (record,) = take(reader, 1)
    assert record.topic == f"{name}-a"
    broker.create_topic(f"{name}-b", 1)
    fill(producer, f"{name}-b", 1)
    (record,) = take(reader, 1)
    assert record.topic == f"{name}-b"


def test_what_was_committed_is_told_with_what_stands_beside_it(two, consumer):
    reader = consumer(None)
    reader.assign([(two, 0), (two, 1)])
    reader.commit({(two, 0): OffsetAndMetadata(4, "half"), TopicPartition(two, 1): 0})
    found = reader.committed([(two, 0), (two, 1)], timeout=100)
    assert found == {(two, 0): OffsetAndMetadata(4, "half"), (two, 1): OffsetAndMetadata(0)}
    reader.commit({(two, 0): OffsetAndMetadata(5, leader_epoch=0)})
    assert reader.committed([(two, 0)])[two, 0].leader_epoch == 0
    assert consumer(None, group=f"{two}-other").committed([(two, 0)]) == {(two, 0): None}
    with pytest.raises(ottla.InvalidArgumentError, match="bytes of metadata"):
        reader.commit({(two, 0): OffsetAndMetadata(4, "x" * 40_000)})
    for wrong in ("4", None, 4.5, (4, 5, None)):
        with pytest.raises(TypeError):
            reader.commit({(two, 0): wrong})


def test_signs_of_life_keep_what_a_member_has_beyond_its_time(two, consumer):
    def story(times):
        options = {"max_poll_interval": int(500 * times), "auto_commit": False}
        alive = consumer(two, group=f"alive-{two}-{times}", **options)
        take(alive, 1)
        alive.keep_alive()
        silent = consumer(two, group=f"silent-{two}-{times}", **options)
        take(silent, 1)
        # Who has read last and says nothing is late; who has read before it would be too.
        while silent.assignment():
            alive.keep_alive()
        kept = alive.assignment()
        alive.close()
        silent.close()
        assert len(kept) == 2

    given_time(story)


def test_tasks_choose_and_look_up_the_same(broker, two):
    async def main():
        async with ottla.AsyncConsumer(broker.address, start="earliest", group=two) as reader:
            reader.assign([(two, 0)])
            assert (await reader.poll(timeout=100)).offset == 0
            assert reader.current_lag(two, 0) == 9
            reader.keep_alive()
            both = [(two, 0), (two, 1)]
            begins, ends, found = await asyncio.gather(
                reader.beginning_offsets(both),
                reader.end_offsets(both),
                reader.offsets_for_times({(two, 0): 1_004_500, (two, 1): 0}),
            )
            assert begins == {(two, 0): 0, (two, 1): 0}
            assert ends == {(two, 0): 10, (two, 1): 0}
            assert (found[two, 0].offset, found[two, 1]) == (5, None)
            assert await reader.seek_before_end(two, 0, 3, timeout=100) == 7
            assert (await reader.poll(timeout=100)).offset == 7
            await reader.commit({(two, 0): OffsetAndMetadata(4, "half")})
            committed = await reader.committed(both)
            assert committed == {(two, 0): OffsetAndMetadata(4, "half"), (two, 1): None}
            with pytest.raises(ottla.InvalidPartitionError):
                await reader.end_offsets([(two, -1)])
            with pytest.raises(ottla.TimeoutError):
                await reader.end_offsets([(two, 9)], timeout=0.5)
            reader.unsubscribe()
            reader.subscribe_pattern(f"{two}.*")
            assert (await reader.poll(timeout=100)).topic == two
        with pytest.raises(ottla.ClosedError):
            await reader.end_offsets([(two, 0)])

    run(main())
