//! The serving side of both perf protocols.

use crate::perf::{self, PERF010, PERF100, Span};
use crate::{Options, host, say};
use anyhow::{Context, Result};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{Stream, StreamProtocol};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

const BLOCK: usize = 128_000;

/// Answers until SIGTERM.
pub async fn serve(o: Options) -> Result<()> {
    let mut swarm = host::build(&o)?;
    let mut control = swarm.behaviour().new_control();
    for name in [PERF010, PERF100] {
        let mut incoming = control
            .accept(StreamProtocol::new(name))
            .context("registering the protocol")?;
        tokio::spawn(async move {
            while let Some((_, stream)) = incoming.next().await {
                tokio::spawn(handle(stream, name));
            }
        });
    }
    let address = host::listen(&mut swarm, &o.listen).await?;
    say(json!({"event": "ready", "address": address.to_string()}));
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = swarm.next() => {}
            _ = term.recv() => return Ok(()),
            _ = int.recv() => return Ok(()),
        }
    }
}

/// Serves one stream and prints what it saw.
async fn handle(mut stream: Stream, protocol: &'static str) {
    let (mut up, mut down) = (Span::default(), Span::default());
    let outcome = exchange(&mut stream, protocol, &mut up, &mut down).await;
    let mut line = json!({"event": "result", "role": "server", "protocol": protocol, "received_bytes": up.bytes,
        "sent_bytes": down.bytes, "seconds": up.seconds() + down.seconds()});
    if outcome.is_err() {
        line["incomplete"] = true.into();
    }
    say(line);
}

/// Drains the upload, then sends what was asked for.
async fn exchange(
    stream: &mut Stream,
    protocol: &str,
    up: &mut Span,
    down: &mut Span,
) -> Result<()> {
    let mut want = 0;
    if protocol == PERF100 {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        want = u64::from_be_bytes(header);
    }
    perf::drain(stream, up).await?;
    perf::send(stream, BLOCK, want, None, down).await?;
    stream.close().await?;
    Ok(())
}
