//! The client: one thread with a runtime of its own for each connection, and on it a task that
//! writes, and in echo mode one that reads, for each stream.
//!
//! One thread for a connection is also what the crate needs: MuxStreamWrite looks at its credit,
//! and only then starts to listen for CONTINUE, so on a runtime of many threads a CONTINUE between
//! the two is lost and the stream hangs. On one thread nothing can come between.
//!
//! A write returns when the socket has taken the packet, so nothing is counted that was not sent.
//!
//! The end. Wisp has no half-close: a CLOSE makes the server drop what it still queues for the
//! target. So the streams are closed only after the servers have been quiet, that is, sent no
//! CONTINUE, for QUIET: while a server drains a queue it hands out credit.

use crate::load::Load;
use crate::websocket::{self, Watched};
use crate::Error;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use wisp_mux::extensions::{udp::UdpProtocolExtensionBuilder, ProtocolExtensionBuilder};
use wisp_mux::{ClientMux, CloseReason, MuxStream, MuxStreamRead, MuxStreamWrite, StreamType};

const SETUP: Duration = Duration::from_secs(15); // the crate waits 5 s for an INFO by itself
const QUIET: Duration = Duration::from_millis(500);
const QUIET_LIMIT: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Mode {
    Flood,
    Echo,
}

#[derive(Args, Clone)]
pub struct Options {
    /// The proxy, ws://HOST:PORT/
    #[arg(long)]
    connect: String,
    /// What the proxy is asked to dial, HOST:PORT
    #[arg(long)]
    target: String,
    #[arg(long, value_enum, default_value = "flood")]
    mode: Mode,
    /// 2 wants a server with the handshake order of the crate (draft 3 and 4)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    wisp_version: u8,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Send exactly so many bytes, all streams together, instead of for a time
    #[arg(long)]
    bytes: Option<u64>,
    /// Payload bytes of a DATA packet
    #[arg(long, default_value_t = 51200, value_parser = clap::value_parser!(u32).range(1..))]
    block: u32,
    /// Streams of each connection
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    streams: u16,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
}

/// What the connections wait for.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Setup,
    Run,
    Close,
}

/// Runs one test and prints its result line.
pub fn run(options: &Options) -> Result<(), Error> {
    let time = match options.bytes {
        Some(_) => None,
        None => Some(Duration::try_from_secs_f64(options.seconds)?),
    };
    let echo = options.mode == Mode::Echo;
    let streams = usize::from(options.streams) * usize::from(options.connections);
    let load = Arc::new(Load::new(options.bytes, streams));
    let (phase, _) = watch::channel(Phase::Setup);

    let begin = Instant::now();
    let threads = connect_all(options, &load, &phase)?;
    let setup = begin.elapsed();

    load.start();
    phase.send_replace(Phase::Run);
    load.supervise(time, echo)?;
    load.wait_quiet(QUIET, QUIET_LIMIT)?;
    load.close();
    phase.send_replace(Phase::Close);
    for thread in threads {
        thread.join().map_err(|_| "a connection's thread panicked")?;
    }
    let result = json!({
        "event": "result",
        "role": "client",
        "protocol": if echo { "echo" } else { "flood" },
        "sent_bytes": load.sent(),
        "received_bytes": load.received(),
        "seconds": load.elapsed().as_secs_f64(),
        "setup_seconds": setup.as_secs_f64(),
    });
    println!("{result}");
    Ok(())
}

/// Starts a thread for each connection and returns when all of them are set up.
fn connect_all(
    options: &Options,
    load: &Arc<Load>,
    phase: &watch::Sender<Phase>,
) -> Result<Vec<thread::JoinHandle<()>>, Error> {
    let (ready, results) = mpsc::channel();
    let mut threads = Vec::new();
    for _ in 0..options.connections {
        let (options, load) = (options.clone(), load.clone());
        let (phase, ready) = (phase.subscribe(), ready.clone());
        threads.push(thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => runtime.block_on(connection(options, load, phase, ready)),
                Err(error) => drop(ready.send(Err(error.into()))),
            }
        }));
    }
    for _ in &threads {
        results.recv()??;
    }
    Ok(threads)
}

/// The life of one connection: tells `ready` how the setup went, then follows `phase`.
async fn connection(
    options: Options,
    load: Arc<Load>,
    mut phase: watch::Receiver<Phase>,
    ready: mpsc::Sender<Result<(), Error>>,
) {
    let opened = tokio::time::timeout(SETUP, open(&options, &load)).await;
    let (mux, streams) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            let _ = ready.send(Err(format!("connecting to {}: {error}", options.connect).into()));
            return;
        }
        Err(_) => {
            let seconds = SETUP.as_secs();
            let message = format!("connecting to {}: not done in {seconds} s", options.connect);
            let _ = ready.send(Err(message.into()));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    if phase.wait_for(|phase| *phase != Phase::Setup).await.is_err() {
        return; // another connection failed
    }

    let mut tasks = Vec::new();
    for stream in streams {
        let (reader, writer) = stream.into_split();
        if options.mode == Mode::Echo {
            tokio::spawn(read(reader, load.clone()));
        }
        tasks.push(tokio::spawn(write(writer, options.clone(), load.clone())));
    }
    let mut writers = Vec::new();
    for task in tasks {
        match task.await {
            Ok(writer) => writers.push(writer),
            Err(error) => load.fail(format!("a writer ended: {error}")),
        }
    }
    if phase.wait_for(|phase| *phase == Phase::Close).await.is_ok() {
        let _ = tokio::time::timeout(CLOSE, close(mux, writers)).await;
    }
}

/// Connects, and opens the streams.
async fn open(options: &Options, load: &Arc<Load>) -> Result<(ClientMux, Vec<MuxStream>), Error> {
    let (host, port) = options.target.rsplit_once(':').ok_or("the target has to be HOST:PORT")?;
    let (host, port) = (host.trim_matches(['[', ']']), port.parse()?);

    let two = options.wisp_version == 2;
    let (reader, writer) = websocket::connect(&options.connect, two.then_some("wisp-v2")).await?;
    let noting = load.clone();
    let reader = Watched { inner: reader, seen: Arc::new(move || noting.message()) };
    let udp: [Box<dyn ProtocolExtensionBuilder + Send + Sync>; 1] =
        [Box::new(UdpProtocolExtensionBuilder)];
    let mux = ClientMux::create(reader, writer, two.then_some(&udp[..])).await?;
    let (mux, task) = mux.with_no_required_extensions();
    let ending = load.clone();
    tokio::spawn(async move {
        let end = task.await;
        ending.fail(match end {
            Ok(()) => "the server closed the WebSocket".into(),
            Err(error) => format!("the connection ended: {error}"),
        });
    });

    let mut streams = Vec::new();
    for _ in 0..options.streams {
        streams.push(mux.client_new_stream(StreamType::Tcp, host.into(), port).await?);
    }
    Ok((mux, streams))
}

/// Writes blocks until the budget is used up, and hands the stream back, still open.
async fn write(stream: MuxStreamWrite, options: Options, load: Arc<Load>) -> MuxStreamWrite {
    let block = vec![0x5a; options.block as usize];
    loop {
        let size = load.take(block.len());
        if size == 0 {
            break;
        }
        if let Err(error) = stream.write(&block[..size]).await {
            let reason = stream.get_close_reason();
            load.fail(format!("writing to {}: {error}, close reason {reason:?}", options.target));
            break;
        }
        load.wrote(size);
    }
    load.writer_done();
    stream
}

/// Counts what comes back until the stream is closed.
async fn read(stream: MuxStreamRead, load: Arc<Load>) {
    while let Some(data) = stream.read().await {
        load.read(data.len());
    }
    let reason = stream.get_close_reason();
    load.fail(format!("the server closed a stream, reason {reason:?}"));
}

async fn close(mux: ClientMux, writers: Vec<MuxStreamWrite>) {
    for writer in &writers {
        let _ = writer.close(CloseReason::Voluntary).await; // it may be closed by now
    }
    let _ = mux.close().await;
}
