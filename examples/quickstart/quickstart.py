"""The first program: starts a broker in this process, sends, reads as a group, commits."""

import ottla

with ottla.Broker(num_partitions=3) as broker:
    with ottla.Producer(broker.address) as producer:
        for number in range(9):
            producer.send("orders", f"order {number}", key=f"customer {number % 3}")
        at = producer.send("orders", b"one more", headers={"awaited": b"yes"}).result(timeout=10)
        print(f"delivered to {at.topic}-{at.partition} at offset {at.offset}")

    read = 0
    with ottla.Consumer(
        broker.address, group="billing", topics=["orders"], start="earliest", auto_commit=False
    ) as consumer:
        for record in consumer:
            place = f"{record.topic}-{record.partition} @{record.offset}"
            print(f"{place}: {record.key} {record.value}")
            read += 1
            if read == 10:
                consumer.commit()
                break

print(f"done: {read} records sent, read and committed")
