//! Who is answered: a browser must mean this server by its name, and may have to show a token.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::uri::{Authority, Uri};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use segue_door::{Place, same};

/// What a page of ours may load: its own parts, and nothing of anybody else's.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a request has to have. A page elsewhere whose name is made to lead here ("DNS rebinding") asks by that name, and is refused.
pub struct Guard {
    /// Where the server listens.
    at: SocketAddr,
    /// Names that it goes by, in small letters.
    names: Vec<String>,
    token: Option<String>,
}

impl Guard {
    /// For a server that listens at `at`, goes by `names` beside its address and `localhost`, and asks for `token` where there is one.
    pub fn new(at: SocketAddr, names: &[String], token: Option<String>) -> Self {
        let names =
            names.iter().map(|name| name.to_ascii_lowercase()).chain(["localhost".to_string()]).collect();
        Self { at, names, token }
    }

    /// Where a browser finds the page. The token is part of it, where there is one.
    pub fn url(&self) -> String {
        let token = self.token.as_ref().map_or(String::new(), |token| format!("?token={token}"));
        let host = self
            .names
            .first()
            .filter(|name| *name != "localhost")
            .map(|name| format!("{name}:{}", self.at.port()));
        format!("http://{}/{token}", host.unwrap_or_else(|| self.at.to_string()))
    }

    /// Whether a host that a request names is this server. Whatever the port: it may have been forwarded.
    fn is_own(&self, host: &str) -> bool {
        let name = host.trim_start_matches('[').trim_end_matches(']');
        match name.parse::<IpAddr>() {
            // An address as a name leads nowhere else: where all are listened at, any will do.
            Ok(address) => {
                let everywhere = self.at.ip().is_unspecified();
                everywhere || address == self.at.ip() || (address.is_loopback() && self.at.ip().is_loopback())
            }
            Err(_) => self.names.contains(&name.to_ascii_lowercase()),
        }
    }

    /// Whether a request means this server, by each name that it gives.
    fn is_meant(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let named = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
        named.is_some_and(|named| !named.as_str().contains('@') && self.is_own(named.host()))
            && uri.host().is_none_or(|host| self.is_own(host))
    }

    fn cookie_name(&self) -> String {
        // Cookies do not tell ports apart, and a host may have several of us.
        format!("segue-watch-{}", self.at.port())
    }

    /// Whether a request shows the token; and the cookie that a browser shows it by from now on, where it came with the address.
    fn admits(&self, uri: &Uri, headers: &HeaderMap) -> (bool, Option<HeaderValue>) {
        let Some(token) = &self.token else { return (true, None) };
        let is_token = |found: &str| same(found, token);
        let bearer =
            headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = cookies.flat_map(|line| line.split("; ")).filter_map(|pair| pair.split_once('='));
        if bearer.is_some_and(is_token) || cookies.any(|(key, value)| key == name && is_token(value)) {
            return (true, None);
        }
        let query = uri.query().filter(|_| uri.path() == "/").unwrap_or_default();
        let given = query.split('&').find_map(|pair| pair.strip_prefix("token="));
        match given.is_some_and(is_token) {
            true => (
                true,
                HeaderValue::try_from(format!("{name}={token}; HttpOnly; SameSite=Strict; Path=/")).ok(),
            ),
            false => (false, None),
        }
    }
}

impl Guard {
    /// The answer to a request, and whether its connection may be asked again: where it has shown the token, and there is what it asks for.
    async fn answer(&self, request: Request, next: Next) -> (Response, bool) {
        let refuse = |code: StatusCode, why: &str| ((code, format!("{why}\n")).into_response(), false);
        let (uri, headers) = (request.uri(), request.headers());
        if !self.is_meant(uri, headers) {
            return refuse(
                StatusCode::FORBIDDEN,
                "this server does not go by that name; --host-name adds one",
            );
        }
        if request.method() != Method::GET {
            return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET");
        }
        let (true, cookie) = self.admits(uri, headers) else {
            let why = "open the address that `segue watch` has printed, with its token";
            return refuse(StatusCode::UNAUTHORIZED, why);
        };
        let stays = self.token.is_some() && is_kept(&request);
        if self.token.is_some() && !stays {
            return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many connections follow these runs");
        }
        let mut response = next.run(request).await;
        cookie.map(|cookie| response.headers_mut().insert(header::SET_COOKIE, cookie));
        let stays = stays && response.status().is_success();
        (response, stays)
    }
}

/// Whether the connection of a request that has shown the token may stay.
fn is_kept(request: &Request) -> bool {
    request.extensions().get::<Arc<Place>>().is_some_and(|place| place.keep())
}

/// Refuses what is not to be answered, and says with each answer what the page may do.
pub async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let (mut response, stays) = guard.answer(request, next).await;
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if !stays {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_goes_by_its_address_and_its_names_alone() {
        let guard = |at: &str| Guard::new(at.parse().unwrap(), &["Node1.example".into()], None);
        let of_loopback = guard("127.0.0.1:80");
        for host in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "node1.example"] {
            assert!(of_loopback.is_own(host), "{host}");
        }
        for host in ["evil.example", "10.0.0.1", "0.0.0.0", "localhost.evil.example", ""] {
            assert!(!of_loopback.is_own(host), "{host}");
        }
        let outside = guard("10.0.0.1:80");
        assert!(outside.is_own("10.0.0.1") && !outside.is_own("10.0.0.2"));
        assert!(guard("0.0.0.0:80").is_own("10.0.0.7") && !guard("0.0.0.0:80").is_own("evil.example"));
    }

    #[test]
    fn the_address_that_is_printed_has_the_token() {
        let at: SocketAddr = "127.0.0.1:6070".parse().unwrap();
        assert_eq!(Guard::new(at, &[], None).url(), "http://127.0.0.1:6070/");
        assert_eq!(Guard::new(at, &["n1".into()], Some("ab".into())).url(), "http://n1:6070/?token=ab");
    }
}
