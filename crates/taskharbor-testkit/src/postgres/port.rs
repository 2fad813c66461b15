//! Ports of this machine, for programs that cannot choose one themselves.

use std::net::{Ipv4Addr, TcpListener};

/// How many ports are tried if other processes take them first.
pub const ATTEMPTS: usize = 5;

/// A port that is free now.
pub fn free() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}
