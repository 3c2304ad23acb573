//! Plays rust-libp2p in the matrix: a server and a client of libp2p's perf protocols, on the library as it
//! is, over TCP with Yamux and with Noise or plaintext. docs/peers.md has the contract.

mod client;
mod host;
mod perf;
mod server;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answers perf streams until SIGTERM.
    Server(Options),
    /// Floods a server.
    Client(Options),
    /// Prints the library's version.
    Version,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Security {
    Noise,
    Plaintext,
}

#[derive(Args, Clone)]
pub struct Options {
    /// Where the server listens, host:port.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: String,
    /// The server's multiaddr with its peer id.
    #[arg(long, default_value = "")]
    pub connect: String,
    #[arg(long, value_enum, default_value = "noise")]
    pub security: Security,
    #[arg(long, default_value = perf::PERF100)]
    pub protocol: String,
    /// Makes the identity deterministic.
    #[arg(long)]
    pub seed: Option<u8>,
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Exactly so many bytes instead, over all streams.
    #[arg(long, default_value_t = 0)]
    pub bytes: u64,
    /// The server sends (/perf/1.0.0).
    #[arg(long)]
    pub download: bool,
    #[arg(long, default_value_t = 128_000)]
    pub block: usize,
    #[arg(long, default_value_t = 1)]
    pub streams: usize,
    #[arg(long, default_value_t = 1)]
    pub connections: usize,
}

/// A thing that this peer cannot do: exit code 127.
#[derive(Debug)]
pub struct Unsupported(pub String);

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not supported by this peer: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

/// Prints one JSON line.
pub fn say(line: Value) {
    println!("{line}");
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Server(o) => server::serve(o).await,
        Command::Client(o) => client::run(o).await,
        Command::Version => {
            println!("rust-libp2p {}", env!("LIBP2P_VERSION"));
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(json!({"event": "error", "message": format!("{e:#}")}));
            ExitCode::from(if e.is::<Unsupported>() { 127 } else { 1 })
        }
    }
}
