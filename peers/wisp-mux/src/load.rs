//! What all streams of a run share: the budget of bytes, the counters, the clock and the verdict.

use crate::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Nothing sent and nothing received for so long: the run has failed.
const STALL: Duration = Duration::from_secs(10);

/// The state of one run. Times are nanoseconds since `begin`; the counters are sums over all
/// streams, in payload bytes.
pub struct Load {
    begin: Mutex<Instant>,
    left: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    last_payload: AtomicU64,
    last_message: AtomicU64,
    writers: AtomicUsize,
    closing: AtomicBool,
    error: Mutex<Option<String>>,
}

impl Load {
    /// `bytes` is what all streams together may send, `writers` how many will.
    pub fn new(bytes: Option<u64>, writers: usize) -> Self {
        Self {
            begin: Mutex::new(Instant::now()),
            left: AtomicU64::new(bytes.unwrap_or(u64::MAX)),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            last_payload: AtomicU64::new(0),
            last_message: AtomicU64::new(0),
            writers: AtomicUsize::new(writers),
            closing: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    /// Starts the clock; call it when every handshake is over and before the first payload.
    pub fn start(&self) {
        *self.begin.lock().unwrap() = Instant::now();
    }

    fn now(&self) -> u64 {
        self.begin.lock().unwrap().elapsed().as_nanos() as u64
    }

    /// Takes up to `block` bytes from the budget; 0 once it is used up.
    pub fn take(&self, block: usize) -> usize {
        let mut taken = 0;
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| {
            taken = left.min(block as u64);
            Some(left - taken)
        });
        taken as usize
    }

    /// Ends the sending: the time is over.
    pub fn exhaust(&self) {
        self.left.store(0, Relaxed);
    }

    pub fn wrote(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
        self.last_payload.fetch_max(self.now(), Relaxed);
    }

    pub fn read(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.last_payload.fetch_max(self.now(), Relaxed);
    }

    pub fn message(&self) {
        self.last_message.store(self.now(), Relaxed);
    }

    pub fn writer_done(&self) {
        self.writers.fetch_sub(1, Relaxed);
    }

    /// Keeps the first failure; what fails once the run is being closed is no failure.
    pub fn fail(&self, message: String) {
        if !self.closing.load(Relaxed) {
            self.error.lock().unwrap().get_or_insert(message);
        }
    }

    pub fn close(&self) {
        self.closing.store(true, Relaxed);
    }

    pub fn check(&self) -> Result<(), Error> {
        match self.error.lock().unwrap().as_ref() {
            Some(message) => Err(message.clone().into()),
            None => Ok(()),
        }
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// From the first payload byte to the last one written or read.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.last_payload.load(Relaxed))
    }

    /// Blocks until everything was written and, if `echo`, came back. `time` ends the sending.
    pub fn supervise(&self, time: Option<Duration>, echo: bool) -> Result<(), Error> {
        loop {
            self.check()?;
            let (now, sent, received) = (self.now(), self.sent(), self.received());
            if time.is_some_and(|time| now >= time.as_nanos() as u64) {
                self.exhaust();
            }
            if self.writers.load(Relaxed) == 0 && (!echo || received >= sent) {
                return match received > sent && echo {
                    true => Err(format!("{received} bytes came back of {sent}").into()),
                    false => Ok(()),
                };
            }
            if now > self.last_payload.load(Relaxed) + STALL.as_nanos() as u64 {
                let seconds = STALL.as_secs();
                return Err(format!(
                    "stalled for {seconds} s: {sent} bytes sent, {received} received"
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Blocks until no message has come for `quiet`, at most `limit`.
    pub fn wait_quiet(&self, quiet: Duration, limit: Duration) -> Result<(), Error> {
        let begin = self.now();
        loop {
            self.check()?;
            let now = self.now();
            let last = self.last_message.load(Relaxed).max(begin);
            if now >= last + quiet.as_nanos() as u64 || now >= begin + limit.as_nanos() as u64 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_exact() {
        let load = Load::new(Some(25), 1);
        let taken: Vec<usize> = (0..4).map(|_| load.take(10)).collect();
        assert_eq!(taken, [10, 10, 5, 0]);
    }

    #[test]
    fn the_first_failure_is_kept() {
        let load = Load::new(None, 1);
        load.fail("first".into());
        load.fail("second".into());
        assert_eq!(load.check().unwrap_err().to_string(), "first");
    }

    #[test]
    fn more_back_than_sent_is_a_failure() {
        let load = Load::new(None, 1);
        load.wrote(10);
        load.read(11);
        load.writer_done();
        assert!(load.supervise(None, true).is_err());
        assert!(load.supervise(None, false).is_ok());
    }
}
