//! Runs as a web page: the page itself, a stream of what changes, and what Prometheus asks for.
//!
//! All that is served is in memory: no part of a request becomes a path.

mod connections;
mod guard;
mod look;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::stream;
use segue_door::listen;
pub use segue_door::token;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;

use connections::{LIMITS, UNREAD, answer};
pub use guard::Guard;
use look::{Look, follow};

use crate::page::{HTML, SCRIPT, STYLE};
use crate::{Runs, WatchError, prometheus};

/// How often a stream says that it lives where nothing else is to be said, and how: by a comment.
const KEEP_ALIVE: (Duration, &[u8]) = (Duration::from_secs(15), b":\n\n");

type Seen = watch::Receiver<Arc<Look>>;

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
        let listener = listen(address, UNREAD).map_err(listening)?;
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

fn router(seen: Seen, guard: Guard) -> Router {
    let look = |State(seen): State<Seen>, of: fn(&Look) -> Bytes| of(&seen.borrow());
    Router::new()
        .route("/", get(|| async { typed("text/html; charset=utf-8", HTML) }))
        .route("/style.css", get(|| async { typed("text/css; charset=utf-8", STYLE) }))
        .route("/page.js", get(|| async { typed("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/events", get(|State(seen)| async { typed("text/event-stream", events(seen)) }))
        .route(
            "/runs.json",
            get(move |seen| async move { typed("application/json", look(seen, Look::json)) }),
        )
        .route(
            "/metrics",
            get(move |seen| async move { typed(prometheus::CONTENT_TYPE, look(seen, Look::metrics)) }),
        )
        .with_state(seen)
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
}

fn typed(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, kind)] as [(HeaderName, &str); 1], text).into_response()
}

/// Everything first, then what changes.
fn events(seen: Seen) -> Body {
    Body::from_stream(stream::unfold((seen, None), |(mut seen, before)| async move {
        if before.is_some() {
            match timeout(KEEP_ALIVE.0, seen.changed()).await {
                Ok(changed) => changed.ok()?,
                Err(_) => return Some((Ok(Bytes::from_static(KEEP_ALIVE.1)), (seen, before))),
            }
        }
        let look = Arc::clone(&seen.borrow_and_update());
        // Whoever reads slowly has missed some.
        let is_next = before.is_some_and(|before: u64| before + 1 == look.number);
        let event = if is_next { look.changes() } else { look.everything() };
        Some((Ok::<_, Infallible>(event), (seen, Some(look.number))))
    }))
}

#[cfg(test)]
mod tests;
