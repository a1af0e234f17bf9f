//! As much of HTTP as a test needs to ask a server on this host, and the server of `segue watch`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::alone;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// `segue watch --serve` on a free port, ended with the test.
pub struct Server {
    /// Its process.
    pub process: Child,
    /// Its port.
    pub port: u16,
    /// The address that it has printed.
    pub url: String,
}

impl Server {
    /// Starts one with these options for runs in these folders.
    ///
    /// # Panics
    ///
    /// Where it does not start.
    pub fn start(options: &[&str], runs: &[String]) -> Self {
        let mut words: Vec<&str> = vec!["watch", "--serve=127.0.0.1:0"];
        words.extend(options);
        words.extend(runs.iter().map(String::as_str));
        let mut process =
            alone(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(process.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("watch: ").unwrap_or_else(|| panic!("{line}")).to_string();
        let port = url.split(['/', ':']).nth(4).and_then(|port| port.parse().ok()).expect("a port");
        Self { process, port, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Code and body of the answer to a request; `head` are further lines of its head.
///
/// # Panics
///
/// Where the server does not answer in HTTP.
pub fn ask(port: u16, method: &str, path: &str, head: &[&str], body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let more: String = head.iter().map(|line| format!("{line}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}"
    )
    .expect("a request is sent");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
    let code = line.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a code");
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line).expect("a head");
        if line.trim().is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').expect("a field");
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
    let mut text = Vec::new();
    // Whoever tells no length closes the connection.
    let read = reader.take(length.unwrap_or(u64::MAX)).read_to_end(&mut text);
    read.expect("a body");
    (code, String::from_utf8_lossy(&text).into_owned())
}

/// Body of the answer to a GET, which must be 200.
///
/// # Panics
///
/// Where it is not.
pub fn get(port: u16, path: &str) -> String {
    let (code, body) = ask(port, "GET", path, &[], "");
    assert_eq!(code, 200, "{path}: {body}");
    body
}
