//! A headless Chromium, driven over WebDriver (W3C, with the commands of chromedriver for the network and the screen).

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::http::ask;

/// Keys by their places in WebDriver's table.
pub const TAB: &str = "\u{e004}";
/// The arrow to the right.
pub const RIGHT: &str = "\u{e014}";
/// The arrow to the left.
pub const LEFT: &str = "\u{e012}";

/// A browser with one window, gone when dropped.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Open to the end: whoever writes to a closed pipe is ended.
    _said: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts one; `None`, said in a line, where there is no Chromium.
    ///
    /// # Panics
    ///
    /// Where there is one, and it does not start.
    pub fn start() -> Option<Self> {
        let command =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut driver) = command else {
            segue_skip::skip(segue_skip::Need::Browser, "no chromedriver (Debian: chromium chromium-driver)");
            return None;
        };
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let told =
            |line: String| line.trim_end_matches('.').rsplit_once("successfully on port ")?.1.parse().ok();
        let port =
            said.by_ref().lines().map_while(Result::ok).find_map(told).expect("chromedriver tells its port");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "performance": "ALL", "browser": "ALL" },
        } } });
        let mut browser = Self { driver, port, session: String::new(), _said: said };
        let answer = browser.send("POST", "/session", &wanted);
        browser.session = answer["sessionId"].as_str().expect("a session").into();
        Some(browser)
    }

    /// The value of the answer to a command.
    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let text = if method == "POST" { body.to_string() } else { String::new() };
        let (code, answer) = ask(self.port, method, path, &["Content-Type: application/json"], &text);
        assert_eq!(code, 200, "{path} {body}: {answer}");
        serde_json::from_str::<Value>(&answer).expect("JSON")["value"].take()
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{command}", self.session), body)
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.post("url", &json!({ "url": url }));
    }

    /// What a script returns.
    pub fn script(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &[&str]) {
        let key = |key: &&str| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        };
        let actions: Vec<Value> = keys.iter().flat_map(key).collect();
        self.post("actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Sends a command of the developer tools.
    pub fn tools(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Makes the page as large as this, in pixels.
    pub fn resize(&self, width: u32, height: u32, mobile: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.tools("Emulation.setDeviceMetricsOverride", size);
    }

    /// Addresses that were asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        let log = self.post("se/log", &json!({ "type": "performance" }));
        let url = |entry: &Value| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            let sent = message["method"] == "Network.requestWillBeSent";
            sent.then(|| message["params"]["request"]["url"].as_str().map(String::from))?
        };
        log.as_array().into_iter().flatten().filter_map(url).collect()
    }

    /// What the console said since the last call: errors, what the policy of the page refused.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("se/log", &json!({ "type": "browser" }));
        log.as_array().into_iter().flatten().map(|entry| entry["message"].to_string()).collect()
    }

    /// The page as a PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let text = self.send("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        STANDARD.decode(text.as_str().expect("text")).expect("base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.send("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
