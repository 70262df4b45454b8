"""Writes batches.txt: one batch of records in each form that producers in the field pack it in.

Each form is put together by hand from its description (Snappy's format, the framing of the Java
library, RFC 1952, the frames of LZ4 and Zstandard), so that no codec's library has a say in it.
Run it from anywhere: ``python3 conformance/batches/make.py``. With ``--check`` it only compares,
and of what gzip packed what it unpacks to: one zlib writes other bytes than another.
"""

import gzip
import pathlib
import random
import struct
import sys
import zlib

RECORDS = 12
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MASK = 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit."""
    crc = MASK
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ MASK


def xxh32(data: bytes) -> int:
    """xxHash of 32 bits with seed 0, as LZ4's frames want it."""
    primes = (2654435761, 2246822519, 3266489917, 668265263, 374761393)

    def turn(word: int, by: int) -> int:
        return (word << by | word >> 32 - by) & MASK

    at = 0
    if len(data) >= 16:
        lanes = [(primes[0] + primes[1]) & MASK, primes[1], 0, -primes[0] & MASK]
        while at + 16 <= len(data):
            for lane in range(4):
                (word,) = struct.unpack_from("<I", data, at + 4 * lane)
                lanes[lane] = turn((lanes[lane] + word * primes[1]) & MASK, 13) * primes[0] & MASK
            at += 16
        total = sum(turn(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = primes[4]
    total = (total + len(data)) & MASK
    while at + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, at)
        total = turn((total + word * primes[2]) & MASK, 17) * primes[3] & MASK
        at += 4
    for byte in data[at:]:
        total = turn((total + byte * primes[4]) & MASK, 11) * primes[0] & MASK
    total = (total ^ total >> 15) * primes[1] & MASK
    total = (total ^ total >> 13) * primes[2] & MASK
    return total ^ total >> 16


def varint(value: int) -> bytes:
    """A length or a delta in a record: zigzag, seven bits a byte."""
    return unsigned(value << 1 ^ value >> 63)


def unsigned(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(delta: int) -> bytes:
    """A record whose value is its offset as text."""
    key, value = b"a key that repeats", str(delta).encode()
    body = bytes(1) + varint(delta) + varint(delta) + varint(len(key)) + key
    body += varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(codec: int, body: bytes) -> bytes:
    """A batch of version 2 from offset 0, its records packed as they are."""
    after_crc = struct.pack(">hiqqqhii", codec, RECORDS - 1, 1, RECORDS, -1, -1, -1, RECORDS)
    after_crc += body
    front = struct.pack(">ibI", -1, 2, crc32c(after_crc))
    return struct.pack(">qi", 0, len(front) + len(after_crc)) + front + after_crc


def snappy(data: bytes) -> bytes:
    """A block of Snappy's: literals, and copies of up to eleven bytes."""
    out, at, literal = bytearray(unsigned(len(data))), 0, bytearray()

    def flush() -> None:
        for start in range(0, len(literal), 60):
            piece = literal[start : start + 60]
            out.append(len(piece) - 1 << 2)
            out.extend(piece)
        literal.clear()

    while at < len(data):
        most = min(11, len(data) - at)
        lengths = range(most, 3, -1)
        found = ((length, data.rfind(data[at : at + length], 0, at)) for length in lengths)
        length, start = next(((le, st) for le, st in found if st >= 0 and at - st < 2048), (0, 0))
        if not length:
            literal.append(data[at])
            at += 1
            continue
        flush()
        back = at - start
        out += bytes([back >> 8 << 5 | length - 4 << 2 | 1, back & 255])
        at += length
    flush()
    return bytes(out)


def xerial(chunks: list[bytes], order: str = ">") -> bytes:
    """The framing of the Java library: magic, version, least version, chunks with their lengths."""
    front = b"\x82SNAPPY\0" + struct.pack(order + "ii", 1, 1)
    packed = [snappy(chunk) for chunk in chunks]
    return front + b"".join(struct.pack(">i", len(chunk)) + chunk for chunk in packed)


def thirds(data: bytes) -> list[bytes]:
    """Three pieces, cut within records."""
    third = len(data) // 3
    return [data[:third], data[third : 2 * third], data[2 * third :]]


def lz4(data: bytes, blocks: bool = False, content: bool = False, size: bool = False) -> bytes:
    """A frame of LZ4's in three blocks, the second one stored, the others all literals."""
    flags = 0x40 | 0x20 | blocks << 4 | size << 3 | content << 2
    front = bytes([flags, 0x40]) + (struct.pack("<Q", len(data)) if size else b"")
    out = b"\x04\x22\x4d\x18" + front + bytes([xxh32(front) >> 8 & 255])
    for number, piece in enumerate(thirds(data)):
        rest = len(piece) - 15
        literals = bytes([0xF0]) + bytes([255] * (rest // 255)) + bytes([rest % 255]) + piece
        block, stored = (piece, 1 << 31) if number == 1 else (literals, 0)
        out += struct.pack("<I", len(block) | stored) + block
        out += struct.pack("<I", xxh32(block)) if blocks else b""
    return out + bytes(4) + (struct.pack("<I", xxh32(data)) if content else b"")


def zstd(data: bytes) -> bytes:
    """A frame of Zstandard's without a size, of three blocks as they are."""
    out = b"\x28\xb5\x2f\xfd" + bytes([0, 0x40])
    for number, piece in enumerate(thirds(data)):
        out += struct.pack("<I", len(piece) << 3 | (number == 2))[:3] + piece
    return out


def forms() -> dict[str, bytes]:
    """Each form's name and batch."""
    data = b"".join(record(delta) for delta in range(RECORDS))
    first, second, third = thirds(data)
    noise = random.Random(7).randbytes(200)
    members = [gzip.compress(piece, mtime=0) for piece in (first, b"", second + third)]
    return {
        "plain": batch(NONE, data),
        "gzip-one-member": batch(GZIP, gzip.compress(data, mtime=0)),
        "gzip-two-members": batch(GZIP, members[0] + members[2]),
        "gzip-with-an-empty-member": batch(GZIP, b"".join(members)),
        "snappy-raw": batch(SNAPPY, snappy(data)),
        "snappy-framed": batch(SNAPPY, xerial([data])),
        "snappy-framed-versions-swapped": batch(SNAPPY, xerial([data], "<")),
        "snappy-framed-three-chunks": batch(SNAPPY, xerial([first, second, third])),
        "snappy-framed-empty-chunk": batch(SNAPPY, xerial([first, b"", second + third])),
        "lz4-bare": batch(LZ4, lz4(data)),
        "lz4-block-checksums": batch(LZ4, lz4(data, blocks=True)),
        "lz4-content-checksum": batch(LZ4, lz4(data, content=True)),
        "lz4-all": batch(LZ4, lz4(data, blocks=True, content=True, size=True)),
        "zstd-stored": batch(ZSTD, zstd(data)),
        "corrupt-gzip": batch(GZIP, noise),
        "corrupt-gzip-magic": batch(GZIP, b"\x1f\x8b\x08\0" + noise),
        "corrupt-snappy": batch(SNAPPY, noise),
        "corrupt-snappy-framed": batch(SNAPPY, xerial([]) + noise),
        "corrupt-lz4": batch(LZ4, noise),
        "corrupt-lz4-magic": batch(LZ4, lz4(data)[:7] + noise),
        "corrupt-zstd": batch(ZSTD, noise),
        "corrupt-zstd-magic": batch(ZSTD, zstd(data)[:6] + noise),
    }


def unpacked(body: bytes) -> tuple[bytes, list[bytes]] | bytes:
    """A gzip batch's header, without what depends on its packed bytes, and what its members hold.

    The batch itself, if it is none or its checksum is wrong.
    """
    (length,), (crc,) = struct.unpack_from(">i", body, 8), struct.unpack_from(">I", body, 17)
    codec = body[22] & 7
    if codec != GZIP or length != len(body) - 12 or crc != crc32c(body[21:]):
        return body
    rest, members = body[61:], []
    while rest:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            members.append(member.decompress(rest))
        except zlib.error:
            return body
        if not member.eof:
            return body
        rest = member.unused_data
    return body[:8] + body[12:17] + body[21:61], members


def check(known: str) -> int:
    """How many forms are not as the file has them, each named."""
    rows = dict(line.split(" ", 1) for line in known.splitlines())
    made = {name: unpacked(body) for name, body in forms().items()}
    held = {name: unpacked(bytes.fromhex(row)) for name, row in rows.items()}
    names = {**made, **held}
    wrong = [name for name in names if made.get(name) != held.get(name)]
    for name in wrong:
        print(f"FAILED  {name} is not what make.py writes")
    print(f"{len(names) - len(wrong)} passed, {len(wrong)} failed")
    return len(wrong)


def main() -> None:
    """Writes the file anew, or compares."""
    file = pathlib.Path(__file__).with_name("batches.txt")
    match sys.argv[1:]:
        case []:
            lines = [f"{name} {body.hex()}\n" for name, body in forms().items()]
            file.write_text("".join(lines))
        case ["--check"]:
            sys.exit(1 if check(file.read_text()) else 0)
        case _:
            sys.exit("usage: make.py [--check]")


main()
