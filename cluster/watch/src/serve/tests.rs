//! The real server on a port of the loopback, asked by hand.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use serde_json::Value;

use super::connections::Limits;
use super::*;

/// A server for the run in `folder`, on a thread that goes with the test.
fn start(folder: &Path, token: Option<&str>) -> SocketAddr {
    let runs = Runs::open(&[folder.to_path_buf()]).unwrap();
    let (begun, begins) = channel();
    let token = token.map(String::from);
    let guard = |at| Guard::new(at, &["node1".to_string()], token);
    let any = "127.0.0.1:0".parse().unwrap();
    thread::spawn(move || serve(runs, any, guard, |at| begun.send(at).unwrap()).unwrap());
    begins.recv().unwrap()
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), r#"{"train":{"steps":6}}"#).unwrap();
    fs::write(
        dir.path().join("metrics.jsonl"),
        "{\"kind\":\"train\",\"step\":1,\"attempt\":1,\"loss\":5.5}\n",
    )
    .unwrap();
    dir
}

/// Code, head and body of the answer to a request of these lines.
fn ask(at: SocketAddr, lines: &[&str]) -> (u16, String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "{}\r\nConnection: close\r\n\r\n", lines.join("\r\n")).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_ascii_lowercase(), body.into())
}

fn code(at: SocketAddr, lines: &[&str]) -> u16 {
    ask(at, lines).0
}

#[test]
fn only_requests_that_mean_this_server_are_answered() {
    let dir = folder();
    let at = start(dir.path(), None);
    for host in ["Host: 127.0.0.1", "Host: localhost:9999", "Host: [::1]:80", "Host: NODE1"] {
        assert_eq!(code(at, &["GET / HTTP/1.1", host]), 200, "{host}");
    }
    for host in [
        "Host: evil.example",
        "Host: 10.0.0.1",
        "Host: localhost.evil.example",
        "Host: a@localhost",
        "Host: ",
        "X: y",
    ] {
        assert!([400, 403].contains(&code(at, &["GET / HTTP/1.1", host])), "{host}");
    }
    assert!([400, 403].contains(&code(at, &["GET / HTTP/1.1", "Host: localhost", "Host: evil.example"])));
    assert_eq!(code(at, &["GET http://evil.example/ HTTP/1.1", "Host: localhost"]), 403);
    for method in ["POST", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
        assert_eq!(code(at, &[&format!("{method} / HTTP/1.1"), "Host: localhost"]), 405, "{method}");
    }
}

#[test]
fn no_part_of_a_request_is_a_path() {
    let dir = folder();
    let at = start(dir.path(), None);
    for path in [
        "/config.json",
        "/metrics.jsonl",
        "/../config.json",
        "/%2e%2e/config.json",
        "//etc/passwd",
        "/run/config.json",
    ] {
        assert_eq!(code(at, &[&format!("GET {path} HTTP/1.1"), "Host: localhost"]), 404, "{path}");
    }
    let (_, head, body) = ask(at, &["GET / HTTP/1.1", "Host: localhost"]);
    assert!(
        head.contains("content-security-policy: default-src 'none'; script-src 'self'")
            && body.contains("page.js")
    );
    let (_, head, body) = ask(at, &["GET /metrics HTTP/1.1", "Host: localhost"]);
    assert!(head.contains("text/plain; version=0.0.4") && body.contains("segue_loss{run="), "{body}");
    let (_, _, body) = ask(at, &["GET /runs.json HTTP/1.1", "Host: localhost"]);
    assert!(body.contains("[1,5.5]"), "{body}");
}

#[test]
fn a_token_is_shown_by_address_once_by_cookie_or_by_header() {
    let dir = folder();
    let at = start(dir.path(), Some("0123abcd"));
    let host = "Host: localhost";
    for path in [
        "/",
        "/events",
        "/metrics",
        "/page.js",
        "/none",
        "/?token=",
        "/?token=0123abce",
        "/runs.json?token=0123abcd",
    ] {
        let (code, head, body) = ask(at, &[&format!("GET {path} HTTP/1.1"), host]);
        assert!(code == 401 && !head.contains("set-cookie") && !body.contains("0123abcd"), "{path}: {code}");
    }
    let (code_of_page, head, _) = ask(at, &["GET /?token=0123abcd HTTP/1.1", host]);
    let cookie = format!("segue-watch-{}=0123abcd", at.port());
    assert_eq!(code_of_page, 200);
    assert!(head.contains(&format!("set-cookie: {cookie}; httponly; samesite=strict; path=/")), "{head}");
    let shown = format!("Cookie: other=1; {cookie}");
    assert_eq!(code(at, &["GET /runs.json HTTP/1.1", host, &shown]), 200);
    assert_eq!(code(at, &["GET /runs.json HTTP/1.1", host, &format!("{shown}0")]), 401);
    assert_eq!(code(at, &["GET /metrics HTTP/1.1", host, "Authorization: Bearer 0123abcd"]), 200);
    assert_eq!(code(at, &["GET /metrics HTTP/1.1", host, "Authorization: Bearer "]), 401);
    // The name counts even where the token is right.
    assert_eq!(code(at, &["GET /?token=0123abcd HTTP/1.1", "Host: evil.example"]), 403);
}

/// The next event of a stream.
fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Value {
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("data: ")).unwrap();
    serde_json::from_str(&line["data: ".len()..]).unwrap()
}

#[test]
fn a_stream_tells_everything_first_and_then_what_changes() {
    let dir = folder();
    let at = start(dir.path(), None);
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let first = event(&mut lines);
    assert_eq!(
        (&first["runs"][0]["step"], &first["runs"][0]["series"][0][1][0][1]),
        (&1.into(), &5.5.into())
    );
    // Another attempt has begun anew, and is further.
    let rows = "{\"kind\":\"train\",\"step\":1,\"attempt\":2,\"loss\":4.5}\n{\"kind\":\"train\",\"step\":2,\"attempt\":2,\"loss\":4.0}\n";
    fs::write(dir.path().join("m"), rows).unwrap();
    fs::rename(dir.path().join("m"), dir.path().join("metrics.jsonl")).unwrap();
    let grown = loop {
        let next = event(&mut lines);
        if next["runs"][0]["series"].is_array() {
            break next;
        }
    };
    assert_eq!(grown["runs"][0]["series"][0][1], serde_json::json!([[1, 4.5], [2, 4.0]]));
    fs::create_dir_all(dir.path().join("checkpoints/step-00000002")).unwrap();
    let more = loop {
        let next = event(&mut lines);
        if next["runs"].as_array().is_some_and(|runs| !runs.is_empty()) {
            break next;
        }
    };
    assert_eq!(
        (&more["runs"][0]["checkpoints"], &more["runs"][0]["series"]),
        (&serde_json::json!([2]), &Value::Null)
    );
}

/// A server of these limits, whose only page is `page`.
fn start_limited(limits: Limits, page: &'static str) -> SocketAddr {
    serve_limited(limits, move |_| Router::new().route("/", get(move || async move { page })))
}

/// A server of these limits for what is asked of the port that it gets.
fn serve_limited(limits: Limits, app: impl FnOnce(SocketAddr) -> Router + Send + 'static) -> SocketAddr {
    let (begun, begins) = channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = listen("127.0.0.1:0".parse().unwrap(), UNREAD).unwrap();
            let at = listener.local_addr().unwrap();
            let app = app(at);
            begun.send(at).unwrap();
            answer(listener, app, limits).await
        })
    });
    begins.recv().unwrap()
}

/// Longer than a test may take.
const NEVER: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_millis(200);
const TWO: segue_door::Limits = segue_door::Limits { strangers: 2, of_network: 2, known: 2 };
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Waits for the end of a connection, whoever closes it and however.
fn ends(stream: &mut TcpStream) {
    let _ = stream.read_to_end(&mut Vec::new());
}

fn megabyte() -> &'static str {
    Box::leak("x".repeat(1 << 20).into_boxed_str())
}

/// Whoever asks for nothing, or half of it, loses the connection.
#[test]
fn a_request_has_to_come_soon() {
    let at = start_limited(Limits { head: SOON, reading: NEVER, connections: TWO }, "it");
    let mut silent = [&b""[..], b"GET / HTTP/1.1\r\nHost: ", REQUEST].map(|said| {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(said).unwrap();
        stream
    });
    silent.iter_mut().for_each(ends);
}

#[test]
fn whoever_reads_nothing_loses_the_connection() {
    let at = start_limited(Limits { head: NEVER, reading: SOON, connections: TWO }, megabyte());
    let mut deaf = TcpStream::connect(at).unwrap();
    // As the server reads no more until its answers are read, this waits until the connection is closed.
    while deaf.write_all(&REQUEST.repeat(100)).is_ok() {}
}

/// Silent, deaf, or in the middle of a request: the newest connection is answered, though the limits of time are far.
#[test]
fn connections_of_others_keep_nobody_out() {
    let limits = Limits { head: NEVER, reading: NEVER, connections: TWO };
    for said in [&b""[..], b"GET / HTTP/1.1\r\nHost: ", &REQUEST.repeat(100)] {
        let at = start_limited(limits, megabyte());
        let mut others = Vec::new();
        for _ in 0..20 {
            others.push(TcpStream::connect(at).unwrap());
            // The connection may be closed by now.
            let _ = others.last().unwrap().write_all(said);
        }
        let (code, _, body) = ask(at, &["GET / HTTP/1.1", "Host: localhost"]);
        assert_eq!((code, body.len()), (200, 1 << 20));
    }
}

#[test]
fn whoever_has_shown_the_token_stays_whatever_others_do() {
    let dir = folder();
    let seen = follow(Runs::open(&[dir.path().to_path_buf()]).unwrap()).unwrap();
    let limits = Limits { head: NEVER, reading: NEVER, connections: TWO };
    let at = serve_limited(limits, |at| router(seen, Guard::new(at, &[], Some("0123abcd".into()))));
    let mut streams = [(); 2].map(|()| {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123abcd\r\n\r\n")
            .unwrap();
        let mut lines = BufReader::new(stream).lines();
        event(&mut lines);
        lines
    });
    // As many as may be.
    let shown = "Authorization: Bearer 0123abcd";
    assert_eq!(code(at, &["GET /metrics HTTP/1.1", "Host: localhost", shown]), 503);
    let others: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
    fs::create_dir_all(dir.path().join("checkpoints/step-00000002")).unwrap();
    for lines in &mut streams {
        while event(lines)["runs"][0]["checkpoints"] != serde_json::json!([2]) {}
    }
    drop(others);
}

#[test]
fn a_connection_without_the_token_has_one_answer() {
    let dir = folder();
    let shown = "Authorization: Bearer 0123abcd\r\n";
    for (token, line, head, code, answers) in [
        (Some("0123abcd"), "GET / HTTP/1.1", "", "401", 1),
        (Some("0123abcd"), "POST /?token=0123abcd HTTP/1.1", "", "405", 1),
        (Some("0123abcd"), "GET /no HTTP/1.1", shown, "404", 1),
        (None, "GET /runs.json HTTP/1.1", "", "200", 1),
        (Some("0123abcd"), "GET /runs.json HTTP/1.1", shown, "200", 2),
    ] {
        let at = start(dir.path(), token);
        let mut stream = TcpStream::connect(at).unwrap();
        let request = |more: &str| format!("{line}\r\nHost: localhost\r\n{head}{more}\r\n");
        stream.write_all([request(""), request("Connection: close\r\n")].concat().as_bytes()).unwrap();
        let mut answer = Vec::new();
        // What was not read any more may reset the connection.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap().to_ascii_lowercase();
        assert!(answer.starts_with(&format!("http/1.1 {code}")), "{answer}");
        assert!(answer.contains("connection: close"), "{answer}");
        assert_eq!(answer.matches("http/1.1").count(), answers, "{answer}");
    }
}
