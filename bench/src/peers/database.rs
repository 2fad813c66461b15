//! A database or a file of its own for one measurement.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, NoTls};

use super::Outcome;
use crate::postgres::Server;

/// Where jobs are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Postgres,
    Sqlite,
}

/// It is removed by the next one of the same kind.
pub(crate) enum Database {
    Postgres { url: String, sql: Client },
    Sqlite { dir: PathBuf },
}

const NAME: &str = "peers";

impl Database {
    /// A new one. All of a server's earlier work is written, so that none of it is left for the side.
    pub(crate) async fn create(kind: Kind, server: &Server) -> Outcome<Self> {
        if kind == Kind::Sqlite {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-peers");
            let dir = root.join(format!("{}-{number}", std::process::id()));
            fs::create_dir_all(&dir)?;
            return Ok(Self::Sqlite { dir: dir.canonicalize()? });
        }
        let admin = server.connect("public").await?;
        admin.batch_execute(&format!("DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")).await?;
        admin.batch_execute(&format!("CREATE DATABASE {NAME}")).await?;
        admin.batch_execute("CHECKPOINT").await?;
        let url = server.url();
        let (url, _) = url.rsplit_once('/').ok_or("a URL without a database")?;
        let url = format!("{url}/{NAME}");
        let (sql, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        Ok(Self::Postgres { url, sql })
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Postgres { .. } => Kind::Postgres,
            Self::Sqlite { .. } => Kind::Sqlite,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres { url, .. } => url.clone(),
            Self::Sqlite { dir } => format!("sqlite:{}", dir.join("jobs.db").display()),
        }
    }

    /// As autovacuum would have left it, and with nothing of it still to be written.
    pub(crate) async fn settle(&self) -> Outcome {
        if let Self::Postgres { sql, .. } = self {
            sql.batch_execute("VACUUM ANALYZE").await?;
            sql.batch_execute("CHECKPOINT").await?;
        }
        Ok(())
    }

    /// Where the write-ahead log is now, in bytes.
    pub(crate) async fn position(&self) -> Outcome<i64> {
        let Self::Postgres { sql, .. } = self else { return Err("no write-ahead log".into()) };
        let position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint";
        Ok(sql.query_one(position, &[]).await?.get(0))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Self::Sqlite { dir } = self {
            let _ = fs::remove_dir_all(dir);
        }
    }
}
