//! How a connection comes about. A simulator puts its own in this place.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::hint;
use super::long;
use crate::config::Address;
use crate::error::{Error, ErrorKind};

#[cfg(test)]
mod tests;

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

/// Looks up the addresses of names.
#[async_trait(?Send)]
pub(crate) trait Names: std::fmt::Debug {
    /// All addresses of a name, with the port.
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver, which runs on another thread.
#[derive(Debug)]
struct System;

#[async_trait(?Send)]
impl Names for System {
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        let found = long::look_up(move || Ok((host.as_str(), port).to_socket_addrs()?.collect()));
        found.await.unwrap_or_else(|| Err(io::Error::other("the look-up broke off")))
    }
}

/// TCP without encryption.
#[derive(Debug)]
pub(crate) struct Tcp {
    names: Box<dyn Names>,
    sizes: SocketBytes,
}

/// Bytes of a socket's buffers for sending and for receiving, where the system is not to choose.
pub(crate) type SocketBytes = (Option<u32>, Option<u32>);

#[async_trait(?Send)]
impl Transport for Tcp {
    async fn connect(
        &self,
        to: &Address,
        advertised: bool,
        wait: Duration,
    ) -> Result<Box<dyn Stream>, Error> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in self.resolve(to, advertised, wait).await? {
            match open(address, self.sizes, wait).await {
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

impl Tcp {
    pub(crate) fn new(sizes: SocketBytes) -> Self {
        Self { names: Box::new(System), sizes }
    }

    /// All addresses of a name. Asked anew for each connection, since a broker may have moved.
    async fn resolve(
        &self,
        to: &Address,
        advertised: bool,
        wait: Duration,
    ) -> Result<Vec<SocketAddr>, Error> {
        let found = timeout(wait, self.names.addresses(&to.host, to.port)).await;
        let found = found.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let found = found.and_then(|addresses| {
            let some = (!addresses.is_empty()).then_some(addresses);
            some.ok_or_else(|| io::ErrorKind::NotFound.into())
        });
        found.map_err(|error| {
            Error::new(ErrorKind::Dns, format!("cannot resolve `{}`", to.host))
                .with_hint(hint::for_name(to, advertised))
                .with_source(error)
        })
    }
}

async fn open(address: SocketAddr, sizes: SocketBytes, wait: Duration) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Before the connection is there: the windows of both sides are agreed on with it.
    if let Some(bytes) = sizes.0 {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = sizes.1 {
        socket.set_recv_buffer_size(bytes)?;
    }
    let connected = timeout(wait, socket.connect(address)).await;
    let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    // A request leaves at once, whether its packet is full or not.
    stream.set_nodelay(true)?;
    Ok(stream)
}
