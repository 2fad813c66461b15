//! A real browser for tests of pages: headless Chromium, driven by the protocol of its own developer
//! tools.
//!
//! The protocol runs over two pipes, so it needs neither a port nor another program. `environment` says
//! where Chromium is.

mod page;
mod pipe;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};

use crate::environment;
use pipe::Pipe;

pub use page::Page;

/// The variables that name the program and its `LD_LIBRARY_PATH`.
const PROGRAM: &str = "TASKHARBOR_CHROMIUM";
const LIBRARIES: &str = "TASKHARBOR_CHROMIUM_LIBS";

/// What keeps Chromium from calling its vendor, from asking for a graphics card and from using shared
/// memory that a container may not have.
const ARGUMENTS: [&str; 12] = [
    "--headless",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--lang=en-US",
    "--hide-scrollbars",
];

/// A running browser. It ends when it is dropped.
pub struct Browser {
    pipe: Arc<Pipe>,
    process: Mutex<Child>,
    dir: PathBuf,
}

impl Browser {
    /// Starts one with an empty profile in a directory of its own below `parent`.
    pub async fn start(parent: &Path) -> Self {
        let program = environment::optional(PROGRAM).unwrap_or_else(|| {
            environment::give_up("no Chromium: run `cargo xtask test`, which finds or fetches one")
        });
        let dir = parent.join(format!("browser-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory for the browser");
        let (to, from) = (dir.join("to"), dir.join("from"));
        for fifo in [&to, &from] {
            let made = Command::new("mkfifo").arg(fifo).status().expect("mkfifo is on the PATH");
            assert!(made.success(), "mkfifo {} failed", fifo.display());
        }
        // The shell opens the pipes under the numbers that the browser expects.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$@" 3<"$TO" 4>"$FROM""#, "sh", &program]).args(ARGUMENTS);
        command.arg(format!("--user-data-dir={}", dir.join("profile").display()));
        if is_root() {
            command.arg("--no-sandbox");
        }
        command.env("TO", &to).env("FROM", &from).env("LANG", "en_US.UTF-8");
        if let Some(libraries) = environment::optional(LIBRARIES) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let log = fs::File::create(dir.join("log")).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("sh is on the PATH");
        let pipe = Pipe::open(&to, &from);
        let browser = Self { pipe, process: Mutex::new(process), dir };
        browser.pipe.call(None, "Browser.getVersion", json!({})).await;
        browser
    }

    /// A new page with storage, cookies and a cache of its own.
    pub async fn page(&self) -> Page {
        let context = self.pipe.call(None, "Target.createBrowserContext", json!({})).await;
        let request =
            json!({ "url": "about:blank", "browserContextId": context["browserContextId"] });
        let target = self.pipe.call(None, "Target.createTarget", request).await;
        let request = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.pipe.call(None, "Target.attachToTarget", request).await;
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        Page::attach(Arc::clone(&self.pipe), session).await
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It may have ended by itself.
        let _ = process.kill();
        let _ = process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Chromium refuses to isolate its processes under this account.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|said| said.stdout.trim_ascii() == b"0")
}

/// Where screenshots are kept.
fn screenshots() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("screenshots")
}

/// A value as an expression of JavaScript.
fn literal(value: &str) -> String {
    Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_page_is_read_clicked_and_filled_and_its_complaints_are_heard() {
        let browser = Browser::start(&env::temp_dir()).await;
        let page = browser.page().await;
        let html = "<input id=a><button onclick=\"document.title = a.value\">Go</button>";
        page.open(&format!("data:text/html,{html}")).await;
        page.fill("#a", "one \"two\"").await;
        page.click_text("Go").await;
        page.wait_for("document.title === 'one \"two\"'").await;
        page.assert_no_complaints();
        page.reload().await;
        assert_eq!(page.eval("a.value").await, "");
        page.eval("setTimeout(() => { throw new Error('lost') }), null").await;
        page.wait_for("true").await;
        page.click_text("Go").await;
        assert!(page.take_complaints().join(" ").contains("lost"));
    }
}
