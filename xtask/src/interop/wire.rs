//! The one question that any Kafka server answers first, asked by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::outcome::{Done, Stop};
use crate::process::Service;

/// ApiVersions v0 (key 18), correlation id 1, no client id; the size first.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_millis(1);

/// Asks until the server answers ApiVersions, while its process lives.
pub(crate) fn wait_until_it_answers(
    service: &mut Service,
    address: SocketAddr,
    limit: Duration,
) -> Done {
    let end = Instant::now() + limit;
    while !answers(address) {
        service.alive()?;
        if Instant::now() >= end {
            let what = format!("no answer on {address} within {} s", limit.as_secs());
            return Err(Stop::Failed(format!("{what}:\n{}", service.output())));
        }
        std::thread::sleep(ASK_AGAIN);
    }
    Ok(())
}

/// True if the server answers with our correlation id.
fn answers(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<[u8; 8]> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.write_all(&API_VERSIONS)?;
        let mut head = [0; 8];
        stream.read_exact(&mut head)?;
        Ok(head)
    };
    ask().is_ok_and(|head| head[4..] == [0, 0, 0, 1])
}
