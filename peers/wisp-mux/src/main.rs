//! The command line of the wisp-mux peer: reads the flags, runs one role, and turns what comes of
//! it into the JSON event lines and the exit code that docs/peers.md asks for.

mod client;
mod gate;
mod load;
mod server;
mod websocket;

use clap::{Parser, Subcommand};
use serde_json::json;
use std::process::ExitCode;

/// What ends a role, told to the user as it is.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(name = "peer", about = "muxperf peer on the wisp-mux crate")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A Wisp proxy that may dial any host, loopback included
    Server {
        #[arg(long, value_name = "HOST:PORT")]
        listen: String,
    },
    /// Load a target through a Wisp proxy
    Client(client::Options),
    /// Print the library and its version
    Version,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Server { listen } => server::run(&listen),
        Command::Client(options) => client::run(&options),
        Command::Version => {
            println!("wisp-mux 5.1.0 (rust)"); // pinned with `=` in Cargo.toml
            Ok(())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}", json!({"event": "error", "message": error.to_string()}));
            ExitCode::FAILURE
        }
    }
}
