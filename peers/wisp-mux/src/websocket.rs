//! The WebSocket below Wisp, with fastwebsockets on hyper: the upgrade of both roles, and a reader
//! that notes when something arrived.
//!
//! Both roles switch Nagle's algorithm off. wisp-mux writes a DATA packet as two frames, a header of
//! 5 bytes and the payload, with a system call for each; with Nagle a header would wait for the
//! acknowledgement of the payload before it.

use crate::Error;
use async_trait::async_trait;
use bytes::Bytes;
use fastwebsockets::{handshake, WebSocket, WebSocketRead, WebSocketWrite};
use http_body_util::Empty;
use hyper::{header, upgrade::Upgraded, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use tokio::io::{split, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use wisp_mux::ws::{Frame, LockedWebSocketWrite};
use wisp_mux::WispError;

type Socket = TokioIo<Upgraded>;
pub type Reader = WebSocketRead<ReadHalf<Socket>>;
pub type Writer = WebSocketWrite<WriteHalf<Socket>>;

/// Splits a WebSocket into the halves that wisp-mux wants.
pub fn halves(socket: WebSocket<Socket>) -> (Reader, Writer) {
    socket.split(split)
}

/// Connects to ws://HOST:PORT/PATH. `subprotocol` is the Sec-WebSocket-Protocol to offer: in Wisp 2
/// any value asks for version 2, none asks for version 1.
pub async fn connect(url: &str, subprotocol: Option<&str>) -> Result<(Reader, Writer), Error> {
    let uri: hyper::Uri = url.parse()?;
    let authority = match (uri.scheme_str(), uri.authority()) {
        (Some("ws"), Some(authority)) => authority.as_str(),
        _ => return Err("the address has to be ws://HOST:PORT/".into()),
    };
    let stream = TcpStream::connect(authority).await?;
    stream.set_nodelay(true)?;

    let mut request = Request::get(uri.path())
        .header(header::HOST, authority)
        .header(header::UPGRADE, "websocket")
        .header(header::CONNECTION, "Upgrade")
        .header(header::SEC_WEBSOCKET_KEY, handshake::generate_key())
        .header(header::SEC_WEBSOCKET_VERSION, "13");
    if let Some(name) = subprotocol {
        request = request.header(header::SEC_WEBSOCKET_PROTOCOL, name);
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let (socket, _) = handshake::client(&TokioExecutor::new(), request, stream).await?;
    Ok(halves(socket))
}

/// A reader that calls `seen` for every message. The crate keeps CONTINUE packets to itself, and
/// they are all that tells whether a server still drains what it queued.
pub struct Watched<R> {
    pub inner: R,
    pub seen: Arc<dyn Fn() + Send + Sync>,
}

#[async_trait]
impl<R: wisp_mux::ws::WebSocketRead + Send> wisp_mux::ws::WebSocketRead for Watched<R> {
    async fn wisp_read_frame(
        &mut self,
        tx: &LockedWebSocketWrite,
    ) -> Result<Frame<'static>, WispError> {
        let frame = self.inner.wisp_read_frame(tx).await;
        (self.seen)();
        frame
    }

    async fn wisp_read_split(
        &mut self,
        tx: &LockedWebSocketWrite,
    ) -> Result<(Frame<'static>, Option<Frame<'static>>), WispError> {
        let frames = self.inner.wisp_read_split(tx).await;
        (self.seen)();
        frames
    }
}
