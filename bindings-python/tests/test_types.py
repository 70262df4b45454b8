"""What type checkers make of the package."""

import subprocess
import sys
import textwrap

PROGRAM = """
    import asyncio
    from typing import assert_type
    import ottla

    def main() -> None:
        with ottla.Broker(num_partitions=3) as broker:
            assert_type(broker.address, str)
            with ottla.Producer(broker.address, linger_ms=5, compression="lz4", acks="all") as p:
                sent = p.send("orders", b"v", key="k", headers={"a": None}, timestamp=0)
                assert_type(sent.result(timeout=1.0).offset, int)
                report = p.send_many("orders", [b"a", (b"k", None), ottla.Record("x"), None])
                assert_type(report.errors, dict[int, ottla.Error])
                assert_type(report.offsets, "memoryview[int]")
            with ottla.Consumer([broker.address], group="g", topics=["orders"]) as c:
                for record in c:
                    assert_type(record, ottla.Record)
                    assert_type(record.value, bytes | None)
                    c.commit(record)
                for batch in c.batches(max_records=5, timeout=1.0):
                    assert_type(batch.values(), list[bytes | None])
                    c.commit_soon({(batch.topic, batch.partition): batch.next_offset})
                assert_type(c.assignment(), list[ottla.TopicPartition])
                ends = c.end_offsets([("orders", 0)])
                assert_type(ends, dict[ottla.TopicPartition, int])
                c.commit(ends)
                c.commit({("orders", 0): ottla.OffsetAndMetadata(5, "x")})
                times = c.offsets_for_times({where: 0 for where in ends})
                assert_type(times, dict[ottla.TopicPartition, ottla.OffsetAndTimestamp | None])
                assert_type(c.seek_before_end("orders", 0, 10), int)

    async def amain() -> None:
        async with ottla.AsyncProducer("localhost:9092", max_block=1000) as p:
            assert_type(await p.send("orders", b"v"), ottla.Delivery)
            assert_type(await p.send_many("orders", [b"v"]), ottla.Report)
        async with ottla.AsyncConsumer("localhost:9092", group="g", topics="orders") as c:
            async for record in c:
                assert_type(record, ottla.Record)
                await c.commit(record)
            assert_type(await c.poll(timeout=1), ottla.Record | None)
            committed = await c.committed(c.assignment())
            assert_type(
                committed, dict[ottla.TopicPartition, ottla.OffsetAndMetadata | None]
            )

    try:
        asyncio.run(amain())
    except ottla.RecordTooLargeError as error:
        assert_type(error.kafka_code, int | None)

    ottla.Producer("localhost:9092", linger_sm=5)  # WRONG
    ottla.Producer("localhost:9092", compression="lzo")  # WRONG
    ottla.Consumer("localhost:9092", topics=5)  # WRONG
    main(5)  # WRONG
"""


def test_a_typed_program_passes_and_its_mistakes_are_found(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    wrong = [n for n, line in enumerate(program.read_text().splitlines(), 1) if "# WRONG" in line]
    found = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert sorted(set(found)) == wrong, done.stdout + done.stderr


def test_the_stubs_are_those_of_the_native_half(tmp_path):
    # Whether a class may share its instances' layout is said in stubs from Python 3.15 on.
    command = [sys.executable, "-m", "mypy.stubtest", "--ignore-disjoint-bases", "ottla._ottla"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
