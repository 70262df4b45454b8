"""Says where librdkafka puts keys, for `cargo xtask interop partitioners`.

    python librdkafka.py KEYS COUNTS

Of KEYS and COUNTS Partitioners.java tells. The library is the one that confluent-kafka
brings along.
"""

import ctypes
import pathlib
import sys
import zlib

import confluent_kafka

RULES = ["consistent_random", "murmur2_random", "fnv1a_random"]
# A rule that gives so many times the same partition of this many looks at the key.
TRIES, MANY = 16, 2**31 - 1


def library():
    beside = pathlib.Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    found = [path for path in beside.iterdir() if path.name.startswith("librdkafka")]
    if len(found) != 1:
        sys.exit(f"no single librdkafka in {beside}")
    return ctypes.CDLL(str(found[0]))


def topic(rdkafka):
    """A topic of a producer that talks to nobody: rules without a key ask it what is there."""
    rdkafka.rd_kafka_new.restype = ctypes.c_void_p
    rdkafka.rd_kafka_new.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    rdkafka.rd_kafka_topic_new.restype = ctypes.c_void_p
    rdkafka.rd_kafka_topic_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    rdkafka.rd_kafka_conf_new.restype = ctypes.c_void_p
    rdkafka.rd_kafka_conf_set.argtypes = [
        ctypes.c_void_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    why = ctypes.create_string_buffer(512)
    options = rdkafka.rd_kafka_conf_new()
    # Else it tells that it knows of no broker.
    if rdkafka.rd_kafka_conf_set(options, b"log_level", b"0", why, len(why)) != 0:
        sys.exit(why.value.decode())
    producer = rdkafka.rd_kafka_new(0, options, why, len(why))
    if not producer:
        sys.exit(why.value.decode())
    return rdkafka.rd_kafka_topic_new(producer, b"t", None)


def main(keys, counts):
    counts = [int(count) for count in counts.split(",")]
    rdkafka = library()
    there = topic(rdkafka)
    rules = []
    for name in RULES:
        rule = getattr(rdkafka, f"rd_kafka_msg_partitioner_{name}")
        rule.restype = ctypes.c_int32
        rule.argtypes = [
            ctypes.c_void_p,
            ctypes.c_char_p,
            ctypes.c_size_t,
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        rules.append((name, rule))
    for line in pathlib.Path(keys).read_text().split():
        key = b"" if line == "-" else bytes.fromhex(line)
        for name, rule in rules:
            where = {rule(there, key, len(key), MANY, None, None) for _ in range(TRIES)}
            if len(where) > 1:
                partitions = "keyless"
            else:
                each = (rule(there, key, len(key), count, None, None) for count in counts)
                partitions = ",".join(str(partition) for partition in each)
            known = f"{zlib.crc32(key):08x}" if name == "consistent_random" else "-"
            print(name, line, known, partitions)


main(*sys.argv[1:])
