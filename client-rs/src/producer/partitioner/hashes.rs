//! The hashes of keys by which clients of Kafka choose partitions.

/// MurmurHash2 of 32 bits, with Kafka's seed [Utils.murmur2].
#[inline]
pub(crate) fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    // Keys are below 2 GiB, as their length field has it; of longer ones the low bits count.
    let length = u32::try_from(data.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let mut hash = 0x9747_b28c ^ length;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    if !tail.is_empty() {
        let mut last = [0; 4];
        last.iter_mut().zip(tail).for_each(|(place, &byte)| *place = byte);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The polynomial of IEEE 802.3, lowest bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// What each byte adds to a [`crc32`].
const CRC_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    let mut at = 0;
    while at < table.len() {
        let mut rest = byte;
        let mut bit = 0;
        while bit < 8 {
            let carry = if rest & 1 == 1 { POLYNOMIAL } else { 0 };
            rest = (rest >> 1) ^ carry;
            bit += 1;
        }
        table[at] = rest;
        byte += 1;
        at += 1;
    }
    table
};

/// CRC-32 of IEEE 802.3, as zlib has it: what librdkafka's default partitioner counts by.
#[inline]
pub(crate) fn crc32(data: &[u8]) -> u32 {
    let add = |crc: u32, &byte: &u8| {
        let [low, ..] = crc.to_le_bytes();
        CRC_OF_BYTE[usize::from(low ^ byte)] ^ (crc >> 8)
    };
    !data.iter().fold(!0, add)
}

/// FNV-1a of 32 bits, without the sign that it has as a signed number: Sarama's default.
#[inline]
pub(crate) fn fnv1a(data: &[u8]) -> u32 {
    let add = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    data.iter().fold(0x811c_9dc5, add).cast_signed().unsigned_abs()
}
