//! The dialing side: floods, one way.

use crate::perf::{self, PERF010, PERF100, Span};
use crate::{Options, Unsupported, host, say};
use anyhow::{Context, Result, bail};
use futures::AsyncWriteExt;
use libp2p::{Stream, StreamProtocol};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// For the server to say that it has read everything.
const DRAIN: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(15);

/// Floods and prints what was sent or received.
pub async fn run(o: Options) -> Result<()> {
    let protocol = match o.protocol.as_str() {
        PERF010 if !o.download => PERF010,
        PERF100 => PERF100,
        other => {
            return Err(Unsupported(format!("protocol {other}, download {}", o.download)).into());
        }
    };
    let began = Instant::now();
    let mut streams = Vec::new();
    for _ in 0..o.connections {
        let (mut control, peer) = timeout(CONNECT, host::dial(&o))
            .await
            .context("connecting took too long")??;
        for _ in 0..o.streams {
            streams.push(
                control
                    .open_stream(peer, StreamProtocol::new(protocol))
                    .await
                    .map_err(|e| anyhow::anyhow!("opening a stream: {e}"))?,
            );
        }
    }
    let setup = began.elapsed();
    let until = (o.bytes == 0).then(|| Instant::now() + Duration::from_secs_f64(o.seconds));
    let n = streams.len() as u64;
    let tasks: Vec<_> = streams
        .into_iter()
        .enumerate()
        .map(|(i, s)| {
            tokio::spawn(move_payload(
                s,
                o.clone(),
                protocol,
                share(o.bytes, i as u64, n),
                until,
            ))
        })
        .collect();
    let mut spans = Vec::new();
    for t in tasks {
        spans.push(t.await??);
    }
    let bytes: u64 = spans.iter().map(|s| s.bytes).sum();
    let first = spans.iter().filter_map(|s| s.first).min();
    let last = spans.iter().filter_map(|s| s.last).max();
    let seconds = Span { bytes, first, last }.seconds();
    let (sent, received) = if o.download { (0, bytes) } else { (bytes, 0) };
    say(
        json!({"event": "result", "role": "client", "protocol": protocol, "sent_bytes": sent, "received_bytes": received,
        "seconds": seconds, "setup_seconds": setup.as_secs_f64()}),
    );
    Ok(())
}

/// Stream i's part of the bytes; with a time instead, there is no end to it.
fn share(bytes: u64, i: u64, n: u64) -> u64 {
    if bytes == 0 {
        u64::MAX
    } else {
        bytes / n + u64::from(i < bytes % n)
    }
}

/// Floods one stream.
async fn move_payload(
    mut stream: Stream,
    o: Options,
    protocol: &'static str,
    n: u64,
    until: Option<Instant>,
) -> Result<Span> {
    let mut span = Span::default();
    if protocol == PERF100 {
        let back = if o.download { n } else { 0 };
        stream
            .write_all(&back.to_be_bytes())
            .await
            .context("writing the header")?;
    }
    if !o.download {
        perf::send(&mut stream, o.block, n, until, &mut span)
            .await
            .context("writing the payload")?;
    }
    stream.close().await.context("ending the upload")?;
    if !o.download {
        timeout(DRAIN, perf::drain(&mut stream, &mut Span::default()))
            .await
            .context("the server did not say that it has read everything")??;
        return Ok(span);
    }
    let reading = perf::drain(&mut stream, &mut span);
    match until {
        Some(t) => {
            let _ = timeout(t.saturating_duration_since(Instant::now()), reading).await;
        }
        None => {
            reading.await.context("reading the download")?;
            if span.bytes != n {
                bail!("{} of {n} bytes arrived", span.bytes);
            }
        }
    }
    Ok(span)
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_add_up() {
        for (bytes, n) in [(1, 3), (10, 3), (1_000_003, 7)] {
            assert_eq!((0..n).map(|i| share(bytes, i, n)).sum::<u64>(), bytes);
        }
        assert_eq!(share(0, 0, 1), u64::MAX);
    }
}
