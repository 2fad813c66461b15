//! Encrypted connections: what each `sslmode` accepts from a server.

use std::{path::PathBuf, process, sync::LazyLock};

use taskharbor_core::Admin;
use taskharbor_postgres::{Config, PostgresDriver};
use tokio_postgres::NoTls;

use crate::harness::{
    account,
    server::{Server, home},
};

/// Makes an authority and, signed by it, the certificate of a server on this machine.
const MAKE: &str = r#"
mkdir "$1"; cd "$1"
new_key='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
printf 'subjectAltName=DNS:localhost\n' > names
openssl req -x509 $new_key -keyout ca.key -out ca.crt -days 2 -subj "/CN=authority of tests"
openssl req $new_key -keyout server.key -out server.csr -subj "/CN=server of tests"
openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
    -extfile names -out server.crt
"#;

/// A directory with `ca.crt`, `server.crt` and `server.key`, which the account of the servers owns.
static CERTIFICATES: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = home().join(format!("tls-{}", process::id()));
    // Encryption cannot be tested without the program; there is no reason to pass.
    account::script(MAKE, &dir, &[]);
    dir
});

/// Whether the programs that there are can encrypt at all: not every build can, and then there is
/// nothing to test.
async fn can_encrypt() -> bool {
    let server = Server::start();
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let sql = "SELECT setting LIKE '%openssl%' FROM pg_config WHERE name = 'CONFIGURE'";
    let can: bool = client.query_one(sql, &[]).await.unwrap().get(0);
    drop(client);
    connection.await.unwrap().unwrap();
    if !can {
        eprintln!("WARNING: this build of PostgreSQL has no TLS, so that NOTHING WAS TESTED");
    }
    can
}

/// A server that offers encryption, with a certificate for `localhost`.
fn server() -> Server {
    let dir = CERTIFICATES.display();
    Server::start_with(&format!(
        "ssl = on\nssl_cert_file = '{dir}/server.crt'\nssl_key_file = '{dir}/server.key'"
    ))
}

/// The URL of a server under one of its names, with the authority that the client trusts.
fn url(server: &Server, host: &str, mode: &str) -> String {
    let (port, dir) = (server.port(), CERTIFICATES.display());
    format!("postgres://taskharbor@{host}:{port}/postgres?sslmode={mode}&sslrootcert={dir}/ca.crt")
}

/// Whether a driver can talk to the server, or why not.
async fn talk(url: &str) -> Result<(), String> {
    let config = Config::from_url(url).map_err(|error| error.to_string())?;
    let driver = PostgresDriver::open(config).await.map_err(|error| error.to_string())?;
    driver.migrate().await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn verify_full_accepts_the_name_in_the_certificate_and_no_other() {
    if !can_encrypt().await {
        return;
    }
    let server = server();
    talk(&url(&server, "localhost", "verify-full")).await.unwrap();
    talk(&url(&server, "127.0.0.1", "verify-full")).await.unwrap_err();
}

#[tokio::test]
async fn verify_full_refuses_a_server_without_encryption() {
    let server = Server::start();
    talk(&url(&server, "localhost", "verify-full")).await.unwrap_err();
}
