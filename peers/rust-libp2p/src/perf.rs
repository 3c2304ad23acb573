//! The perf protocols, and payload with the instants of its first and last byte.

use anyhow::Result;
use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use std::time::Instant;

pub const PERF010: &str = "/perf/0.1.0";
pub const PERF100: &str = "/perf/1.0.0";
const BUFFER: usize = 128_000;

#[derive(Default, Clone, Copy)]
pub struct Span {
    pub bytes: u64,
    pub first: Option<Instant>,
    pub last: Option<Instant>,
}

impl Span {
    pub fn seconds(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) => (last - first).as_secs_f64(),
            _ => 0.0,
        }
    }

    fn add(&mut self, n: usize) {
        let now = Instant::now();
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.bytes += n as u64;
    }
}

/// Reads to the end of data.
pub async fn drain(r: &mut (impl AsyncRead + Unpin), span: &mut Span) -> Result<()> {
    let mut buf = vec![0; BUFFER];
    loop {
        match r.read(&mut buf).await? {
            0 => return Ok(()),
            n => span.add(n),
        }
    }
}

/// Writes n bytes, or until the time is up if that is set.
pub async fn send(
    w: &mut (impl AsyncWrite + Unpin),
    block: usize,
    n: u64,
    until: Option<Instant>,
    span: &mut Span,
) -> Result<()> {
    let buf = vec![0x5a; block];
    if n > 0 {
        span.first = Some(Instant::now());
    }
    while span.bytes < n && until.is_none_or(|t| Instant::now() < t) {
        let part = (n - span.bytes).min(block as u64) as usize;
        w.write_all(&buf[..part]).await?;
        span.add(part);
    }
    w.flush().await?;
    Ok(())
}
