//! What a client speaks that does not speak the Kafka protocol, by the first bytes that it sends.

/// Methods of HTTP, and the preface of HTTP/2.
const HTTP: &[&[u8; 4]] =
    &[b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"TRAC", b"PRI "];

/// What came in place of the size of a request, and what to set.
pub(crate) fn what_came(prefix: [u8; 4], most: usize) -> String {
    let size = i32::from_be_bytes(prefix);
    match prefix {
        // A handshake record; then the version, 3.0 to 3.4.
        [0x16, 0x03, 0..=4, _] => "the client speaks TLS, and this listener is plaintext: set \
             security.protocol=PLAINTEXT (or SASL_PLAINTEXT) at the client"
            .to_owned(),
        // The hello of SSL 2: a length with its high bit set, then the type 1.
        [0x80..=0xff, _, 0x01, _] => {
            "the client speaks SSL 2, and this listener is plaintext: set \
             security.protocol=PLAINTEXT at the client"
                .to_owned()
        }
        _ if HTTP.contains(&&prefix) => "the client speaks HTTP, and this port is for the Kafka \
             protocol: set the address of an HTTP service there, or bootstrap.servers to a client \
             of Kafka"
            .to_owned(),
        [b'S', b'S', b'H', b'-'] => {
            "the client speaks SSH, and this port is for the Kafka protocol".to_owned()
        }
        _ if prefix.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => {
            let text: String = prefix.iter().copied().map(char::from).collect();
            format!(
                "the client sent text that begins with {text:?}, and this port is for the Kafka \
                 protocol"
            )
        }
        _ => format!(
            "a request of {size} bytes is outside 0 to {most} (socket.request.max.bytes), or the \
             client does not speak the Kafka protocol"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stranger_speaks_is_told_by_its_first_bytes() {
        for (bytes, expected) in [
            (&[0x16, 3, 1, 2], "TLS"),
            (&[0x16, 3, 3, 0], "TLS"),
            (&[0x80, 0x2e, 1, 3], "SSL 2"),
            (b"GET ", "HTTP"),
            (b"PRI ", "HTTP"),
            (b"SSH-", "SSH"),
            (b"EHLO", "\"EHLO\""),
            (&[0xff, 0xff, 0xff, 0xff], "request of -1 bytes"),
            (&[0x10, 0, 0, 0], "request of 268435456 bytes"),
        ] {
            let told = what_came(*bytes, 100);
            assert!(told.contains(expected), "{bytes:?}: {told}");
        }
        for bytes in [&[0x16, 3, 1, 2], &[0x80, 0x2e, 1, 3]] {
            assert!(what_came(*bytes, 100).contains("security.protocol"), "what to set");
        }
    }
}
