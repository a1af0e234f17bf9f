//! A port that anybody can reach, for those who show a token.
//!
//! A [`Door`] serves each connection on a task of its own. Until a connection has shown the token it is a stranger: there are only so many of
//! them, in all and from one network, and where one more comes the oldest goes. So whoever asks at once is answered, whatever others do
//! with the connections that they hold; and who has shown the token stays. A connection that has ended leaves nothing behind.

mod table;

use std::convert::Infallible;
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::AbortHandle;

pub use table::Limits;
use table::Table;

/// Connections that the system holds until they are accepted, each in its turn: so many take less than a second.
const BACKLOG: u32 = 1024;
/// How long a host that has no files left is given until the next connection is accepted.
const OUT_OF_FILES: Duration = Duration::from_millis(50);

/// 128 random bits as text.
///
/// # Errors
///
/// The system gives none.
pub fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Whether two texts are the same, in a time that tells nothing of where they differ: hashes of BLAKE3 compare so.
pub fn same(one: &str, other: &str) -> bool {
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

/// Listens at an address. The system keeps up to `unread` bytes that a connection has been sent and does not read.
///
/// # Errors
///
/// What the system refused.
pub fn listen(address: SocketAddr, unread: u32) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Accepted connections have it from the socket that listens.
    socket.set_send_buffer_size(unread)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The connections of a port. Dropped, it closes them.
pub struct Door {
    table: Arc<Mutex<Table<AbortHandle>>>,
}

/// A connection's place behind the door, which it gives back when it is dropped.
pub struct Place {
    table: Arc<Mutex<Table<AbortHandle>>>,
    number: u64,
}

impl Door {
    /// With nobody behind it.
    pub fn new(limits: Limits) -> Self {
        Self { table: Arc::new(Mutex::new(Table::new(limits))) }
    }

    /// Serves whoever comes, for ever. `serve` is what a connection is served by.
    pub async fn open<W: Future<Output = ()> + Send + 'static>(
        &self,
        listener: &TcpListener,
        serve: impl Fn(TcpStream, Place) -> W,
    ) -> Infallible {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => self.admit(from.ip(), |place| serve(stream, place)),
                // Of a connection that has gone meanwhile, or for want of files, which others will close.
                Err(_) => tokio::time::sleep(OUT_OF_FILES).await,
            }
            // Whoever was accepted has its turn before the next one, which may push it out.
            tokio::task::yield_now().await;
        }
    }

    fn admit<W: Future<Output = ()> + Send + 'static>(&self, from: IpAddr, serve: impl FnOnce(Place) -> W) {
        let number = lock(&self.table).enter(from);
        // Not under the lock: a task may end at once, and gives its place back.
        let task = tokio::spawn(serve(Place { table: Arc::clone(&self.table), number })).abort_handle();
        let too_many = lock(&self.table).serve(number, task);
        too_many.into_iter().for_each(|task| task.abort());
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let all = lock(&self.table).close();
        all.into_iter().for_each(|task| task.abort());
    }
}

impl Place {
    /// Lets the connection stay, which has shown the token. False where as many have as may be.
    pub fn keep(&self) -> bool {
        lock(&self.table).keep(self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.table).leave(self.number);
    }
}

fn lock<T>(table: &Mutex<Table<T>>) -> MutexGuard<'_, Table<T>> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::Ipv4Addr;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[test]
    fn tokens_are_random_and_compare_as_a_whole() {
        assert_eq!(token().unwrap().len(), 32);
        assert_ne!(token().unwrap(), token().unwrap());
        assert!(same("ab", "ab") && !same("ab", "ac") && !same("ab", "a") && !same("ab", ""));
    }

    /// Reads from a connection until it ends, however it does.
    async fn ends(mut stream: TcpStream) {
        match stream.read_to_end(&mut Vec::new()).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_newest_strangers_stay_and_those_who_are_known() {
        let limits = Limits { strangers: 2, of_network: 2, known: 1 };
        let listener = listen((Ipv4Addr::LOCALHOST, 0).into(), 4096).unwrap();
        let at = listener.local_addr().unwrap();
        let door = Arc::new(Door::new(limits));
        let (table, of_loop) = (Arc::clone(&door.table), Arc::clone(&door));
        // Whoever says something is known.
        let serve = |mut stream: TcpStream, place: Place| async move {
            while stream.read_u8().await.is_ok() && place.keep() {}
        };
        let loops = tokio::spawn(async move { of_loop.open(&listener, serve).await });
        let known = TcpStream::connect(at).await.unwrap();
        known.writable().await.unwrap();
        known.try_write(b"x").unwrap();
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(TcpStream::connect(at).await.unwrap());
        }
        let newest = streams.split_off(18);
        for stream in streams {
            ends(stream).await;
        }
        // A second one is one too many.
        newest[0].try_write(b"x").unwrap();
        let [refused, newest] = newest.try_into().unwrap();
        ends(refused).await;
        assert_eq!(lock(&table).count(), 2);
        loops.abort();
        let _ = loops.await;
        drop(door);
        ends(newest).await;
        ends(known).await;
        assert_eq!(lock(&table).count(), 0);
    }
}
