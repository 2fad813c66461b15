//! A way to a server that can be cut without a word, as a firewall or a failover does it.

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Passes bytes on between clients and a server on this machine, until it is told not to.
pub struct Proxy {
    port: u16,
    /// Which connections are cut: those with a lower number.
    cut: watch::Sender<usize>,
    made: watch::Receiver<usize>,
}

impl Proxy {
    /// Leads to the server at this port.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, is_cut) = watch::channel(0);
        let (count, made) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = *count.borrow();
                count.send_replace(number + 1);
                tokio::spawn(pass_on(client, server, number, is_cut.clone()));
            }
        });
        Self { port, cut, made }
    }

    /// Where clients connect.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From here on nothing passes over the connections there are, and neither side is told.
    pub fn swallow(&self) {
        self.cut.send_replace(*self.made.borrow());
    }
}

async fn pass_on(
    mut client: TcpStream,
    server: u16,
    number: usize,
    mut cut: watch::Receiver<usize>,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
    let is_cut = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        cut = cut.wait_for(|below| number < *below) => cut.is_ok(),
    };
    if is_cut {
        // Both ends stay open until the proxy goes.
        while cut.changed().await.is_ok() {}
    }
}
