//! Finds the version of libp2p in the lock file, for `peer version`.

use std::fs;

fn main() {
    println!("cargo:rerun-if-changed=Cargo.lock");
    let lock = fs::read_to_string("Cargo.lock").expect("Cargo.lock is committed");
    let version = lock
        .split("[[package]]")
        .find(|p| p.contains("name = \"libp2p\"\n"))
        .and_then(|p| p.split("version = \"").nth(1))
        .and_then(|v| v.split('"').next())
        .expect("libp2p is in Cargo.lock");
    println!("cargo:rustc-env=LIBP2P_VERSION={version}");
}
