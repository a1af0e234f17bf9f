//! Connections: how many, and how long each may take to ask and to read.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use segue_door::{Door, Place};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};

/// Bytes of an answer that the system keeps for whoever does not read them.
pub const UNREAD: u32 = 64 << 10;
/// Longest head of a request. Cookies do not tell ports apart, and so those of other servers of the host are in it.
const LONGEST_HEAD: usize = 16 << 10;

/// What whoever has no token may ask of the server.
#[derive(Clone, Copy)]
pub struct Limits {
    /// How long the head of a request may take to come, and how long a connection may ask for nothing.
    pub head: Duration,
    /// How long what is sent may take to be read.
    pub reading: Duration,
    /// Connections at once.
    pub connections: segue_door::Limits,
}

/// Strangers cost 20 kB each. Where there is no token, all are strangers for good: of their pages that follow runs the newest stay.
pub const LIMITS: Limits = Limits {
    head: Duration::from_secs(2),
    reading: Duration::from_secs(30),
    connections: segue_door::Limits { strangers: 192, of_network: 128, known: 512 },
};

/// Answers for ever.
pub async fn answer(listener: TcpListener, app: Router, limits: Limits) -> Infallible {
    let door = Door::new(limits.connections);
    door.open(&listener, |stream, place| converse(stream, Arc::new(place), app.clone(), limits)).await
}

/// Answers the requests of a connection. Each has the connection's place, for whoever finds that it shows the token.
async fn converse(stream: TcpStream, place: Arc<Place>, app: Router, limits: Limits) {
    let app = TowerToHyperService::new(app);
    let service = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&place));
        app.call(request)
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(LONGEST_HEAD);
    // What breaks off concerns whoever has asked.
    let _ = http.serve_connection(TokioIo::new(Impatient::new(stream, limits.reading)), service).await;
}

/// A connection that ends where what is written to it is not read in time.
struct Impatient {
    stream: TcpStream,
    limit: Duration,
    /// Ends the time for what is being written, as long as that is more than the system takes.
    ends: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, ends: None }
    }

    fn in_time(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            let limit = self.limit;
            ready!(self.ends.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx));
            return Poll::Ready(Err(ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl AsyncRead for Impatient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, from);
        self.in_time(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, from);
        self.in_time(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// All is written: the next answer has its own time. To read a byte now and then gains none.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ends = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
