//! Runs as a web page: the page itself, a stream of what changes, and what Prometheus asks for.
//!
//! All that is served is in memory: no part of a request becomes a path.

mod guard;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::middleware::from_fn_with_state;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use futures_util::stream;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub use guard::{Guard, token};

use crate::page::{HTML, SCRIPT, STYLE, data, whole, without_curves};
use crate::{RunView, Runs, WatchError, now, prometheus};

/// How often the folders of runs are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pages that may follow the runs at once.
const STREAMS: usize = 64;

/// What whoever has no token may ask of the server.
#[derive(Clone, Copy)]
struct Limits {
    /// How long the head of a request may take to come.
    head: Duration,
    /// Connections at once; further ones wait until one is closed.
    connections: usize,
}

const LIMITS: Limits = Limits { head: Duration::from_secs(10), connections: 512 };

/// Runs as they were seen last. One that has not changed is the same object.
type Seen = Arc<Vec<Arc<RunView>>>;

#[derive(Clone)]
struct Served {
    seen: watch::Receiver<Seen>,
    streams: Arc<Semaphore>,
}

/// Serves the page of `runs` at `address` until the process is asked to end by SIGINT or SIGTERM. `begins` is told where it listens, once
/// that is so.
///
/// # Errors
///
/// The address cannot be listened at.
pub fn serve(
    runs: Runs,
    address: SocketAddr,
    guard: impl FnOnce(SocketAddr) -> Guard,
    begins: impl FnOnce(SocketAddr),
) -> Result<(), WatchError> {
    let serving = |source| WatchError::Serve { source };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(serving)?;
    runtime.block_on(async {
        let listening = |source| WatchError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listening)?;
        let at = listener.local_addr().map_err(listening)?;
        let seen = follow(runs).map_err(serving)?;
        let mut interrupted = signal(SignalKind::interrupt()).map_err(serving)?;
        let mut terminated = signal(SignalKind::terminate()).map_err(serving)?;
        let app = router(seen, guard(at));
        begins(at);
        tokio::select! {
            never = answer(listener, app, LIMITS) => match never {},
            // Streams would go on for ever: they end with the process.
            _ = interrupted.recv() => Ok(()),
            _ = terminated.recv() => Ok(()),
        }
    })
}

/// Answers for ever.
async fn answer(mut listener: TcpListener, app: Router, limits: Limits) -> Infallible {
    let places = Arc::new(Semaphore::new(limits.connections));
    loop {
        let place = Arc::clone(&places).acquire_owned().await;
        let (stream, _) = Listener::accept(&mut listener).await;
        let service = TowerToHyperService::new(app.clone());
        tokio::spawn(async move {
            let _place = place;
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(limits.head);
            // What breaks off concerns whoever has asked.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Looks at the runs on a thread of its own, which ends with whoever is told: a file system may take its time.
fn follow(mut runs: Runs) -> std::io::Result<watch::Receiver<Seen>> {
    let first: Vec<Arc<RunView>> = runs.look().map(|run| Arc::new(run.clone())).collect();
    let (told, seen) = watch::channel(Arc::new(first));
    thread::Builder::new().name("watch-runs".into()).spawn(move || {
        while !told.is_closed() {
            thread::sleep(LOOK_EVERY);
            let before = Arc::clone(&told.borrow());
            let look = |(i, run): (usize, &RunView)| match before.get(i) {
                Some(same) if **same == *run => Arc::clone(same),
                _ => Arc::new(run.clone()),
            };
            told.send_replace(Arc::new(runs.look().enumerate().map(look).collect()));
        }
    })?;
    Ok(seen)
}

fn router(seen: watch::Receiver<Seen>, guard: Guard) -> Router {
    let served = Served { seen, streams: Arc::new(Semaphore::new(STREAMS)) };
    Router::new()
        .route("/", get(|| async { typed("text/html; charset=utf-8", HTML) }))
        .route("/style.css", get(|| async { typed("text/css; charset=utf-8", STYLE) }))
        .route("/page.js", get(|| async { typed("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/events", get(events))
        .route("/runs.json", get(runs))
        .route("/metrics", get(metrics))
        .with_state(served)
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
}

fn typed(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind)] as [(HeaderName, &str); 1], text).into_response()
}

fn views(served: &Served) -> Vec<RunView> {
    served.seen.borrow().iter().map(|run| RunView::clone(run)).collect()
}

async fn runs(State(served): State<Served>) -> Response {
    typed("application/json", data(&views(&served)).to_string())
}

async fn metrics(State(served): State<Served>) -> Response {
    typed(prometheus::CONTENT_TYPE, prometheus::exposition(&views(&served)))
}

/// What a page has been told of the runs.
struct Told {
    seen: watch::Receiver<Seen>,
    before: Option<Seen>,
    _place: OwnedSemaphorePermit,
}

/// Everything first, then what changes.
async fn events(State(served): State<Served>) -> Response {
    let Ok(place) = Arc::clone(&served.streams).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages follow these runs\n").into_response();
    };
    let told = Told { seen: served.seen, before: None, _place: place };
    let events = stream::unfold(told, |mut told| async move {
        if told.before.is_some() {
            told.seen.changed().await.ok()?;
        }
        let seen = Arc::clone(&told.seen.borrow_and_update());
        let event = Event::default().data(changes(told.before.as_ref(), &seen));
        told.before = Some(seen);
        Some((Ok::<_, Infallible>(event), told))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// The runs that are not what they were, with the time; curves only of those that have grown. Runs keep their numbers, new ones come last.
fn changes(before: Option<&Seen>, seen: &Seen) -> String {
    let changed =
        seen.iter().enumerate().filter_map(|(i, run)| match before.and_then(|before| before.get(i)) {
            Some(before) if Arc::ptr_eq(before, run) => None,
            Some(before) if before.series == run.series => Some(without_curves(i, run)),
            _ => Some(whole(i, run)),
        });
    json!({ "now": now(), "runs": changed.collect::<Vec<_>>() }).to_string()
}

#[cfg(test)]
mod tests;
