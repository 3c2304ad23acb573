//! The swarm, with what a user of the library would set for a throughput test and nothing else: idle
//! connections are kept, since a stream between two runs is no stream.

use crate::{Options, Security};
use anyhow::{Context, Result};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder, identity, multiaddr::Protocol, noise, plaintext,
    swarm::SwarmEvent, tcp, yamux,
};
use libp2p_stream as stream;
use std::{net::SocketAddr, time::Duration};
use tokio::sync::oneshot;

const KEEP_IDLE: Duration = Duration::from_secs(3600);

/// Builds a swarm whose only behaviour is to carry streams.
pub fn build(o: &Options) -> Result<Swarm<stream::Behaviour>> {
    let key = match o.seed {
        Some(seed) => identity::Keypair::ed25519_from_bytes([seed; 32])?,
        None => identity::Keypair::generate_ed25519(),
    };
    let builder = SwarmBuilder::with_existing_identity(key).with_tokio();
    let config = tcp::Config::default().nodelay(true);
    let keep = |c: libp2p::swarm::Config| c.with_idle_connection_timeout(KEEP_IDLE);
    Ok(match o.security {
        Security::Noise => builder
            .with_tcp(config, noise::Config::new, yamux::Config::default)?
            .with_behaviour(|_| stream::Behaviour::new())?
            .with_swarm_config(keep)
            .build(),
        Security::Plaintext => builder
            .with_tcp(
                config,
                |key: &identity::Keypair| {
                    Ok::<_, std::convert::Infallible>(plaintext::Config::new(key))
                },
                yamux::Config::default,
            )?
            .with_behaviour(|_| stream::Behaviour::new())?
            .with_swarm_config(keep)
            .build(),
    })
}

/// Listens on host:port and returns the address with the peer id, the port filled in.
pub async fn listen(swarm: &mut Swarm<stream::Behaviour>, at: &str) -> Result<Multiaddr> {
    let socket: SocketAddr = at.parse().with_context(|| format!("the address {at}"))?;
    let address = Multiaddr::from(socket.ip()).with(Protocol::Tcp(socket.port()));
    swarm.listen_on(address)?;
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::NewListenAddr { address, .. } => {
                return Ok(address.with(Protocol::P2p(*swarm.local_peer_id())));
            }
            SwarmEvent::ListenerClosed { reason, .. } => {
                reason.with_context(|| format!("listening on {at}"))?;
            }
            SwarmEvent::ListenerError { error, .. } => {
                return Err(error).with_context(|| format!("listening on {at}"));
            }
            _ => {}
        }
    }
}

/// Dials, waits for the connection, and goes on driving the swarm in the background.
pub async fn dial(o: &Options) -> Result<(stream::Control, PeerId)> {
    let mut swarm = build(o)?;
    let address: Multiaddr = o
        .connect
        .parse()
        .with_context(|| format!("the address {:?}", o.connect))?;
    let peer = match address.iter().last() {
        Some(Protocol::P2p(id)) => id,
        _ => anyhow::bail!("the address {address} has no peer id at its end"),
    };
    let control = swarm.behaviour().new_control();
    swarm.dial(address.clone())?;
    let (connected, wait) = oneshot::channel();
    tokio::spawn(async move {
        let mut connected = Some(connected);
        loop {
            match swarm.select_next_some().await {
                SwarmEvent::ConnectionEstablished { .. } => {
                    if let Some(c) = connected.take() {
                        let _ = c.send(Ok(()));
                    }
                }
                SwarmEvent::OutgoingConnectionError { error, .. } => {
                    if let Some(c) = connected.take() {
                        let _ = c.send(Err(anyhow::anyhow!("{error}")));
                    }
                }
                _ => {}
            }
        }
    });
    wait.await?.with_context(|| format!("dial {address}"))?;
    Ok((control, peer))
}
