//! Queues between threads.

use std::sync::mpsc::{self, RecvError, SendError, TryRecvError, TrySendError};

use crate::simulation::{Resource, current};

/// A queue without a limit.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::channel();
    let resource = Resource::new();
    (Sender { sender, bell: Bell(resource) }, Receiver { receiver, bell: Bell(resource) })
}

/// A queue of at most `depth` values, at least one.
pub fn bounded<T>(depth: usize) -> (BoundedSender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(depth.max(1));
    let resource = Resource::new();
    (BoundedSender { sender, bell: Bell(resource) }, Receiver { receiver, bell: Bell(resource) })
}

/// The end of a queue without a limit that takes values. Never waits.
#[derive(Debug)]
pub struct Sender<T> {
    // Before the bell: whoever is woken finds the queue closed.
    sender: mpsc::Sender<T>,
    bell: Bell,
}

/// The end of a limited queue that takes values.
#[derive(Debug)]
pub struct BoundedSender<T> {
    sender: mpsc::SyncSender<T>,
    bell: Bell,
}

/// The end of a queue that gives values.
#[derive(Debug)]
pub struct Receiver<T> {
    receiver: mpsc::Receiver<T>,
    bell: Bell,
}

/// Tells the other end in a simulation that there is something to look at; dropped, that this end is gone.
#[derive(Debug)]
struct Bell(Resource);

impl Bell {
    fn ring(&self) {
        if let Some(seat) = current() {
            seat.simulation.wake(self.0);
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.ring();
    }
}

impl<T> Sender<T> {
    /// Hands a value over.
    ///
    /// # Errors
    ///
    /// The value, where nobody will take it.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.sender.send(value)?;
        self.bell.ring();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: Bell(self.bell.0) }
    }
}

impl<T> BoundedSender<T> {
    /// Hands a value over as soon as there is room.
    ///
    /// # Errors
    ///
    /// The value, where nobody will take it.
    pub fn send(&self, mut value: T) -> Result<(), SendError<T>> {
        let Some(seat) = current() else { return self.sender.send(value) };
        loop {
            value = match self.sender.try_send(value) {
                Ok(()) => {
                    self.bell.ring();
                    return Ok(());
                }
                Err(TrySendError::Disconnected(value)) => return Err(SendError(value)),
                Err(TrySendError::Full(value)) => value,
            };
            seat.simulation.wait(seat.me, self.bell.0);
        }
    }
}

impl<T> Receiver<T> {
    /// Takes the next value as soon as there is one.
    ///
    /// # Errors
    ///
    /// There will be none.
    pub fn recv(&self) -> Result<T, RecvError> {
        let Some(seat) = current() else { return self.receiver.recv() };
        loop {
            match self.receiver.try_recv() {
                Ok(value) => {
                    self.bell.ring();
                    return Ok(value);
                }
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => seat.simulation.wait(seat.me, self.bell.0),
            }
        }
    }

    /// Takes the next value if there is one.
    ///
    /// # Errors
    ///
    /// There is none now, or there will be none.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let taken = self.receiver.try_recv();
        if taken.is_ok() {
            self.bell.ring();
        }
        taken
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = Values<T>;

    fn into_iter(self) -> Values<T> {
        Values(self)
    }
}

/// The values of a queue until its other end is gone.
pub struct Values<T>(Receiver<T>);

impl<T> Iterator for Values<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn values_come_in_order_until_the_other_end_is_gone() {
        let (sender, receiver) = channel();
        let other = sender.clone();
        thread::spawn(move || (0..3).for_each(|value| other.send(value).unwrap())).join().unwrap();
        drop(sender);
        assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
        let (sender, receiver) = channel();
        drop(receiver);
        assert!(sender.send(1).is_err());
    }

    #[test]
    fn a_limited_queue_holds_its_sender_up() {
        let (sender, receiver) = bounded(0);
        let work = thread::spawn(move || (0..9).try_for_each(|value| sender.send(value)).is_err());
        assert_eq!([receiver.recv(), receiver.recv()], [Ok(0), Ok(1)]);
        drop(receiver);
        assert!(work.join().unwrap());
    }
}
