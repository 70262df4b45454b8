//! How a connection comes about. A simulator puts its own in this place.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::hint;
use crate::config::Address;
use crate::error::{Error, ErrorKind};

/// Both ways of an open connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// Opens connections.
#[async_trait(?Send)]
pub(crate) trait Transport: std::fmt::Debug {
    /// Resolves the name, and tries each of its addresses for so long.
    ///
    /// `advertised` if the address came from the cluster and not from the options.
    async fn connect(
        &self,
        to: &Address,
        advertised: bool,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error>;
}

/// TCP without encryption.
#[derive(Debug)]
pub(crate) struct Tcp;

#[async_trait(?Send)]
impl Transport for Tcp {
    async fn connect(
        &self,
        to: &Address,
        advertised: bool,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in resolve(to, advertised, wait).await? {
            match open(address, wait).await {
                Ok(stream) => return Ok(Box::new(stream)),
                Err(error) => {
                    tracing::debug!(broker = %to, %address, %error, "cannot connect");
                    last = error;
                }
            }
        }
        let error = Error::new(ErrorKind::Connect, format!("cannot connect to {to}"));
        let error = match hint::for_connect(&last, to, advertised) {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
        Err(error.with_source(last))
    }
}

/// All addresses of a name. Asked anew for each connection, since a broker may have moved; the
/// resolver runs on another thread.
async fn resolve(to: &Address, advertised: bool, wait: Duration) -> Result<Vec<SocketAddr>, Error> {
    let fault = |error: io::Error| {
        Error::new(ErrorKind::Dns, format!("cannot resolve `{}`", to.host))
            .with_hint(hint::for_name(to, advertised))
            .with_source(error)
    };
    let found = timeout(wait, lookup_host((to.host.as_str(), to.port))).await;
    let addresses: Vec<SocketAddr> =
        found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(fault)?.collect();
    if addresses.is_empty() { Err(fault(io::ErrorKind::NotFound.into())) } else { Ok(addresses) }
}

async fn open(address: SocketAddr, wait: Duration) -> io::Result<TcpStream> {
    let connected = timeout(wait, TcpStream::connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    // A request leaves at once, whether its packet is full or not.
    stream.set_nodelay(true)?;
    Ok(stream)
}
