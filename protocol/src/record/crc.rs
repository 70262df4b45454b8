//! CRC-32C of bytes that lie in one place, in a chain of slices, or that changed only in front.

/// CRC-32C of `bytes`.
#[inline]
pub fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of what `crc` stands for, followed by `bytes`.
#[inline]
pub fn append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// CRC-32C of the slices of a chain, as if they were one.
pub fn of_chain<'a>(chain: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    chain.into_iter().fold(0, append)
}

/// CRC-32C of two byte strings in a row, from the CRC of each and the length of the second.
#[inline]
pub fn combine(first: u32, second: u32, second_len: usize) -> u32 {
    crc32c::crc32c_combine(first, second, second_len)
}

/// The CRC of a byte string after its head changed, without reading the tail.
///
/// `whole` is the CRC before the change, `old_head` and `new_head` are the CRCs of the equally long
/// head before and after, `tail_len` is how many bytes follow the head. A CRC is linear, so a tail
/// that was damaged before is still found out afterwards.
#[inline]
pub fn replace_head(whole: u32, old_head: u32, new_head: u32, tail_len: usize) -> u32 {
    whole ^ combine(old_head ^ new_head, 0, tail_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_crc_32c() {
        assert_eq!(of(b"123456789"), 0xE306_9283);
        assert_eq!(of(b""), 0);
    }

    #[test]
    fn chain_and_combination_equal_the_whole() {
        let text = b"the quick brown fox jumps over the lazy dog";
        for cut in 0..=text.len() {
            let (head, tail) = text.split_at(cut);
            assert_eq!(of_chain([head, &[], tail]), of(text));
            assert_eq!(combine(of(head), of(tail), tail.len()), of(text));
        }
    }

    #[test]
    fn head_is_replaced_without_the_tail() {
        let (old, new, tail) = (b"epoch 1", b"epoch 2", b"and all the records");
        let whole = of_chain([&old[..], tail]);
        let changed = replace_head(whole, of(old), of(new), tail.len());
        assert_eq!(changed, of_chain([&new[..], tail]));
        assert_eq!(replace_head(of(old), of(old), of(new), 0), of(new));
    }
}
