//! A page of the browser, as a person uses it: going somewhere, reading, clicking, typing.

use std::{fs, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{literal, pipe::Pipe, screenshots};

/// How long a page may take until it shows what a test waits for, on a machine that is busy.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// A page. What it complains about in its console fails the test that asks with
/// [`Page::assert_no_complaints`].
pub struct Page {
    pipe: Arc<Pipe>,
    session: String,
}

impl Page {
    pub(super) async fn attach(pipe: Arc<Pipe>, session: String) -> Self {
        let page = Self { pipe, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({})).await;
        }
        page.resize(1280, 900).await;
        page
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        self.pipe.call(Some(&self.session), method, params).await
    }

    /// Makes the window this large.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Asks for light or dark pages.
    pub async fn prefer(&self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features })).await;
    }

    /// Goes to an address.
    pub async fn open(&self, url: &str) {
        let answer = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(answer.get("errorText").is_none(), "{url}: {}", answer["errorText"]);
        self.wait_for("document.readyState === 'complete'").await;
    }

    /// Loads the page again.
    pub async fn reload(&self) {
        // Marked, so that the old document is not taken for the new one.
        self.eval("window.isOld = true").await;
        self.call("Page.reload", json!({})).await;
        self.wait_for("!window.isOld && document.readyState === 'complete'").await;
    }

    /// What an expression of JavaScript comes to; promises are awaited.
    pub async fn eval(&self, expression: &str) -> Value {
        match self.try_eval(expression).await {
            Ok(value) => value,
            Err(thrown) => panic!("{expression}: {thrown}"),
        }
    }

    async fn try_eval(&self, expression: &str) -> Result<Value, String> {
        let request =
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.pipe.try_call(Some(&self.session), "Runtime.evaluate", request).await?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(thrown["exception"]["description"].to_string()),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true. The page looks again whenever it draws.
    pub async fn wait_for(&self, condition: &str) {
        let script = format!(
            "new Promise(done => {{
                const look = () => {{
                    let is = false;
                    try {{ is = Boolean({condition}) }} catch {{ /* not there yet */ }}
                    is ? done(true) : setTimeout(look, 20);
                }};
                look();
            }})"
        );
        let seen = async {
            // A page that goes elsewhere takes the promise with it.
            while self.try_eval(&script).await != Ok(Value::Bool(true)) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(WAIT_LIMIT, seen).await.is_err() {
            let shown = self.eval("document.body.innerText").await;
            let address = self.eval("location.href").await;
            self.screenshot("failed").await;
            let complaints = self.pipe.complaints(&self.session);
            panic!("{condition} is not true at {address}\n{complaints:?}\n{shown}");
        }
    }

    /// Waits until the page shows this text.
    pub async fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("document.body.innerText.includes({})", literal(text))).await;
    }

    /// Waits until there is an element.
    pub async fn wait_for_element(&self, selector: &str) {
        self.wait_for(&format!("document.querySelector({})", literal(selector))).await;
    }

    /// All text of the page, as a person sees it.
    pub async fn text(&self) -> String {
        self.eval("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Clicks on an element, as soon as it is there and can be used.
    pub async fn click(&self, selector: &str) {
        let element = format!("document.querySelector({})", literal(selector));
        self.click_on(&element).await;
    }

    /// Clicks on the button, link or summary with exactly this text.
    pub async fn click_text(&self, text: &str) {
        let element = format!(
            "[...document.querySelectorAll('button, a, summary, [role=button], [role=tab], label')]
                .find(it => it.offsetParent && it.innerText.trim() === {})",
            literal(text)
        );
        self.click_on(&element).await;
    }

    /// Clicks on an element as soon as a person could: it is shown, usable, and nothing lies over its middle.
    /// Looking and clicking are one step, so that a page that moves meanwhile does not get in between.
    async fn click_on(&self, element: &str) {
        self.wait_for(&format!(
            "(it => {{
                if (!it || it.disabled || it.getClientRects().length === 0) return false;
                it.scrollIntoView({{ block: 'center', inline: 'center' }});
                const box = it.getBoundingClientRect();
                const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                if (!top || !(it.contains(top) || top.contains(it))) return false;
                it.focus();
                it.click();
                return true;
            }})({element})"
        ))
        .await;
    }

    /// Waits until an element is shown.
    async fn wait_for_shown(&self, selector: &str) {
        let element = format!("document.querySelector({})", literal(selector));
        self.wait_for(&format!("{element}?.getClientRects().length > 0")).await;
    }

    /// Replaces the text of a field, as typing does.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.wait_for_shown(selector).await;
        let field = format!("document.querySelector({})", literal(selector));
        self.eval(&format!("{field}.focus(), {field}.select && {field}.select(), true")).await;
        if text.is_empty() {
            return self.press("Delete").await;
        }
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Chooses an option of a list by its value.
    pub async fn choose(&self, selector: &str, value: &str) {
        self.wait_for_shown(selector).await;
        let (selector, value) = (literal(selector), literal(value));
        self.eval(&format!(
            "(() => {{
                const list = document.querySelector({selector});
                list.value = {value};
                list.dispatchEvent(new Event('input', {{ bubbles: true }}));
                list.dispatchEvent(new Event('change', {{ bubbles: true }}));
            }})()"
        ))
        .await;
    }

    /// Presses a key by its name: `Enter`, `Escape`, `?`, `g`.
    pub async fn press(&self, key: &str) {
        let mut event = json!({ "type": "keyDown", "key": key });
        if key.chars().count() == 1 {
            event["text"] = key.into();
        }
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Tab" => 9,
            "Delete" => 46,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            _ => 0,
        };
        if code != 0 {
            event["windowsVirtualKeyCode"] = code.into();
            event["code"] = key.into();
        }
        if key == "Enter" {
            event["text"] = "\r".into();
        }
        self.call("Input.dispatchKeyEvent", event.clone()).await;
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", event).await;
    }

    /// Keeps a picture of what is seen under `target/screenshots`.
    pub async fn screenshot(&self, name: &str) {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        let picture = answer["data"].as_str().and_then(decoded).expect("a picture in base64");
        let dir = screenshots();
        fs::create_dir_all(&dir).expect("a directory for screenshots");
        fs::write(dir.join(format!("{name}.png")), picture).expect("a screenshot");
    }

    /// Fails if the page has thrown an exception, logged an error or broken its security policy.
    pub fn assert_no_complaints(&self) {
        let complaints = self.pipe.complaints(&self.session);
        assert!(complaints.is_empty(), "{complaints:#?}");
    }

    /// Forgets complaints that the test has caused on purpose; answers them.
    pub fn take_complaints(&self) -> Vec<String> {
        self.pipe.complaints(&self.session)
    }
}

/// The bytes of a text in base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    BASE64_STANDARD.decode(text).ok()
}
