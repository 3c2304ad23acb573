//! A gate between the WebSocket and the crate's server, which would otherwise lose data.
//!
//! A CONTINUE replaces a client's credit. The packets that were on their way when the server worked
//! it out are then granted twice, so a fast client sends more than the 128 packets that the crate
//! queues for a stream, and what does not fit the crate drops in silence. The gate counts, for each
//! stream, the packets in that queue: those let in less those taken out. It holds a packet back
//! until there is room, and with it the WebSocket, so that TCP slows the client down.

use async_trait::async_trait;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use wisp_mux::ws::{Frame, LockedWebSocketWrite, OpCode, WebSocketRead};
use wisp_mux::WispError;

const CONNECT: u8 = 1;
const DATA: u8 = 2;

/// The packets that wait in the crate's queues, by stream.
pub struct Gate {
    waiting: Mutex<HashMap<u32, u32>>,
    room: Notify,
    limit: u32,
}

impl Gate {
    /// `limit` is the length of the crate's queue for a stream.
    pub fn new(limit: u32) -> Arc<Self> {
        let (waiting, room) = (Mutex::default(), Notify::new());
        Arc::new(Self { waiting, room, limit })
    }

    /// A packet of the stream left the queue.
    pub fn taken(&self, stream: u32) {
        if let Some(count) = self.waiting.lock().unwrap().get_mut(&stream) {
            *count = count.saturating_sub(1);
        }
        self.room.notify_waiters();
    }

    /// The stream is over; what still comes for it the crate ignores.
    pub fn forget(&self, stream: u32) {
        self.waiting.lock().unwrap().remove(&stream);
        self.room.notify_waiters();
    }

    /// Waits until the packet fits. A packet begins with its type (u8) and its stream (u32, little
    /// endian), as in the Wisp specification; what is shorter is left to the crate.
    async fn admit(&self, packet: &[u8]) {
        let Some((&[kind, ref id @ ..], _)) = packet.split_first_chunk::<5>() else { return };
        let stream = u32::from_le_bytes([id[0], id[1], id[2], id[3]]);
        match kind {
            CONNECT => drop(self.waiting.lock().unwrap().insert(stream, 0)),
            DATA => loop {
                let room = self.room.notified(); // before the look, so that no notice is missed
                if self.enter(stream) {
                    return;
                }
                room.await;
            },
            _ => {}
        }
    }

    fn enter(&self, stream: u32) -> bool {
        match self.waiting.lock().unwrap().get_mut(&stream) {
            Some(count) if *count >= self.limit => false,
            Some(count) => {
                *count += 1;
                true
            }
            None => true,
        }
    }
}

/// A reader whose messages pass the gate.
pub struct Gated<R> {
    pub inner: R,
    pub gate: Arc<Gate>,
}

/// Lets the frame pass that a packet begins in.
async fn admit(gate: &Gate, frame: &Frame<'static>) {
    if frame.opcode == OpCode::Binary {
        gate.admit(&frame.payload).await;
    }
}

#[async_trait]
impl<R: WebSocketRead + Send> WebSocketRead for Gated<R> {
    async fn wisp_read_frame(
        &mut self,
        tx: &LockedWebSocketWrite,
    ) -> Result<Frame<'static>, WispError> {
        let frame = self.inner.wisp_read_frame(tx).await?;
        admit(&self.gate, &frame).await;
        Ok(frame)
    }

    async fn wisp_read_split(
        &mut self,
        tx: &LockedWebSocketWrite,
    ) -> Result<(Frame<'static>, Option<Frame<'static>>), WispError> {
        let frames = self.inner.wisp_read_split(tx).await?;
        admit(&self.gate, &frames.0).await;
        Ok(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const OPEN: [u8; 5] = [CONNECT, 7, 0, 0, 0];
    const PACKET: [u8; 6] = [DATA, 7, 0, 0, 0, 0x5a];

    async fn passes(gate: &Gate) -> bool {
        tokio::time::timeout(Duration::from_millis(20), gate.admit(&PACKET)).await.is_ok()
    }

    #[tokio::test]
    async fn a_full_queue_holds_the_next_packet_until_one_is_taken() {
        let gate = Gate::new(2);
        gate.admit(&OPEN).await;
        assert!(passes(&gate).await && passes(&gate).await);
        assert!(!passes(&gate).await);
        gate.taken(7);
        assert!(passes(&gate).await);
        gate.forget(7);
        assert!(passes(&gate).await);
    }

    #[tokio::test]
    async fn what_is_no_packet_passes() {
        for packet in [&[][..], &[DATA], &[DATA, 7, 0, 0]] {
            Gate::new(0).admit(packet).await;
        }
    }
}
