//! The server: a Wisp proxy that dials whatever host a stream names, loopback included.
//!
//! Each connection has a thread with a runtime of its own, for the same reason as in the client: the
//! crate counts credit with a load and a store that are not one step, and two threads that meet
//! there lose some of it. On one thread nothing can come between, and several connections still use
//! several cores.

use crate::gate::{Gate, Gated};
use crate::websocket;
use crate::Error;
use bytes::Bytes;
use http_body_util::{Either, Empty, Full};
use hyper::body::Incoming;
use hyper::header::SEC_WEBSOCKET_PROTOCOL;
use hyper::{server::conn::http1, service::service_fn, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::mpsc;
use wisp_mux::extensions::{udp::UdpProtocolExtensionBuilder, ProtocolExtensionBuilder};
use wisp_mux::{CloseReason, ConnectPacket, MuxStreamRead, MuxStreamWrite, ServerMux, StreamType};

const CREDIT: u32 = 128; // packets of a stream in flight, what every Wisp server here grants
const CHUNK: usize = 64 << 10; // bytes read from a target at once, the payload of a DATA packet
const CONNECT: Duration = Duration::from_secs(10);
const REQUEST: Duration = Duration::from_secs(10);

/// An accepted upgrade: the WebSocket to come, and whether the client asked for Wisp 2.
type Upgrade = (fastwebsockets::upgrade::UpgradeFut, bool);

/// Serves until SIGTERM.
pub fn run(listen: &str) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminated = signal(SignalKind::terminate())?;
        let listener = TcpListener::bind(listen)
            .await
            .map_err(|error| format!("listening on {listen}: {error}"))?;
        let address = format!("ws://{}/", listener.local_addr()?);
        println!("{}", json!({"event": "ready", "address": address}));
        loop {
            tokio::select! {
                _ = terminated.recv() => return Ok(()),
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => spawn(stream.into_std()?),
                    Err(error) => {
                        eprintln!("accepting: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await; // out of files, say
                    }
                },
            }
        }
    })
}

/// Gives a connection its thread.
fn spawn(stream: std::net::TcpStream) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Err(error) = runtime.map_err(Error::from).and_then(|it| it.block_on(serve(stream))) {
            eprintln!("a connection ended: {error}");
        }
    });
}

/// Answers HTTP until the upgrade, then carries Wisp.
async fn serve(stream: std::net::TcpStream) -> Result<(), Error> {
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    let (upgrades, mut upgraded) = mpsc::unbounded_channel();
    let service = service_fn(|request| {
        let response = answer(request, &upgrades);
        async { response }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await?;
    match upgraded.try_recv() {
        Ok((socket, two)) => carry(socket.await?, two).await,
        Err(_) => Ok(()), // plain HTTP
    }
}

/// Accepts a WebSocket upgrade, and takes the first subprotocol offered: the `ws` package and
/// browsers refuse an answer without one.
fn answer(
    mut request: Request<Incoming>,
    upgrades: &mpsc::UnboundedSender<Upgrade>,
) -> Result<Response<Either<Empty<Bytes>, Full<Bytes>>>, Error> {
    if !fastwebsockets::upgrade::is_upgrade_request(&request) {
        return Ok(Response::new(Either::Right(Full::from("wisp-mux\n"))));
    }
    let (mut response, socket) = fastwebsockets::upgrade::upgrade(&mut request)?;
    let offered = request.headers().get(SEC_WEBSOCKET_PROTOCOL);
    let first = offered.and_then(|list| list.to_str().ok()?.split(',').next());
    if let Some(name) = first {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, name.trim().parse()?);
    }
    upgrades.send((socket, first.is_some()))?;
    Ok(response.map(Either::Left))
}

/// Carries the streams of one WebSocket until it ends.
async fn carry(
    socket: fastwebsockets::WebSocket<TokioIo<hyper::upgrade::Upgraded>>,
    two: bool,
) -> Result<(), Error> {
    let (reader, writer) = websocket::halves(socket);
    let udp: [Box<dyn ProtocolExtensionBuilder + Send + Sync>; 1] =
        [Box::new(UdpProtocolExtensionBuilder)];
    let gate = Gate::new(CREDIT);
    let reader = Gated { inner: reader, gate: gate.clone() };
    let mux = ServerMux::create(reader, writer, CREDIT, two.then_some(&udp[..])).await?;
    let (mux, task) = mux.with_no_required_extensions();
    let mut task = tokio::spawn(task);
    loop {
        tokio::select! {
            ended = &mut task => return Ok(ended??),
            stream = mux.server_new_stream() => match stream {
                Some((connect, stream)) => {
                    let (reader, writer) = stream.into_split();
                    tokio::spawn(proxy(connect, Source { reader, gate: gate.clone() }, writer));
                }
                None => return Ok(task.await??),
            },
        }
    }
}

/// What a client sends on a stream.
struct Source {
    reader: MuxStreamRead,
    gate: Arc<Gate>,
}

impl Source {
    async fn next(&self) -> Option<Bytes> {
        let data = self.reader.read().await;
        self.gate.taken(self.reader.stream_id);
        data
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.gate.forget(self.reader.stream_id);
    }
}

/// Joins a stream to its target until either ends, and tells the client why.
async fn proxy(connect: ConnectPacket, source: Source, writer: MuxStreamWrite) {
    let target = (connect.destination_hostname.as_str(), connect.destination_port);
    let joined = match connect.stream_type {
        StreamType::Tcp => tcp(target, &source, &writer).await,
        StreamType::Udp => udp(target, &source, &writer).await,
        _ => Err(CloseReason::ServerStreamInvalidInfo),
    };
    let reason = joined.err().unwrap_or(CloseReason::Voluntary);
    let _ = writer.close(reason).await; // the client may have closed it already
}

async fn tcp(
    target: (&str, u16),
    source: &Source,
    writer: &MuxStreamWrite,
) -> Result<(), CloseReason> {
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(target))
        .await
        .map_err(|_| CloseReason::ServerStreamConnectionTimedOut)?
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::ConnectionRefused => CloseReason::ServerStreamConnectionRefused,
            _ => CloseReason::ServerStreamUnreachable,
        })?;
    stream.set_nodelay(true).map_err(|_| CloseReason::Unexpected)?;
    let (mut from, mut to) = stream.into_split();

    let up = async {
        while let Some(data) = source.next().await {
            to.write_all(&data).await.map_err(|_| CloseReason::Unexpected)?;
        }
        Ok(())
    };
    let down = async {
        let mut chunk = vec![0; CHUNK];
        loop {
            match from.read(&mut chunk).await {
                Ok(0) => return Ok(()),
                Ok(size) => {
                    writer.write(&chunk[..size]).await.map_err(|_| CloseReason::Unexpected)?
                }
                Err(_) => return Err(CloseReason::Unexpected),
            }
        }
    };
    tokio::select! { end = up => end, end = down => end }
}

async fn udp(
    target: (&str, u16),
    source: &Source,
    writer: &MuxStreamWrite,
) -> Result<(), CloseReason> {
    let address = tokio::net::lookup_host(target)
        .await
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or(CloseReason::ServerStreamUnreachable)?;
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await.map_err(|_| CloseReason::Unexpected)?;
    socket.connect(address).await.map_err(|_| CloseReason::ServerStreamUnreachable)?;

    let up = async {
        while let Some(data) = source.next().await {
            let _ = socket.send(&data).await; // a datagram may be lost
        }
        Ok(())
    };
    let down = async {
        let mut datagram = vec![0; CHUNK];
        loop {
            let size = socket.recv(&mut datagram).await.map_err(|_| CloseReason::Unexpected)?;
            writer.write(&datagram[..size]).await.map_err(|_| CloseReason::Unexpected)?;
        }
    };
    tokio::select! { end = up => end, end = down => end }
}
