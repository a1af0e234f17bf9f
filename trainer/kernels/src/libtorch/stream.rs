//! Streams of a card, and marks on them. Through what libtorch registers for a kind of device, so that CUDA is not linked; on the processor, where
//! work is over when its call returns, they are nothing.

use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use tch::{Device, Tensor};

use super::{CppTensor, checked, cpp};
use crate::TrainError;

/// `StreamNumbers` of the C++ side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
struct Numbers {
    id: i64,
    index: i64,
    kind: i64,
}

#[repr(C)]
struct CppEvent {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn segue_stream_beside(
        kind: i64,
        index: i64,
        stream: *mut Numbers,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_stream_enter(
        stream: *const Numbers,
        before: *mut Numbers,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_stream_current(
        kind: i64,
        index: i64,
        stream: *mut Numbers,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_stream_keep(
        stream: *const Numbers,
        tensor: *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_pinned(
        tensor: *mut CppTensor,
        copy: *mut *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_copy_queued(
        target: *mut CppTensor,
        source: *mut CppTensor,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_stream_native(
        stream: *const Numbers,
        native: *mut *mut c_void,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_event_now(
        kind: i64,
        index: i64,
        event: *mut *mut CppEvent,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_event_block(
        event: *mut CppEvent,
        stream: *const Numbers,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_event_query(
        event: *mut CppEvent,
        passed: *mut bool,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
    fn segue_event_free(event: *mut CppEvent);
    fn segue_peak_bytes(
        kind: i64,
        index: i64,
        bytes: *mut i64,
        message: *mut c_char,
        capacity: usize,
    ) -> bool;
}

/// `c10::DeviceType::CUDA`.
const CUDA: i64 = 1;

/// A card's kind and number; `None` for what has no streams.
fn card(device: Device) -> Option<(i64, i64)> {
    match device {
        Device::Cuda(index) => Some((CUDA, index as i64)),
        _ => None,
    }
}

/// A queue of work beside the one that threads use by themselves.
#[derive(Debug, Clone, Copy)]
pub struct Stream(Option<Numbers>);

impl Stream {
    /// One of `device`; it lives as long as the process.
    pub fn beside(device: Device) -> Result<Self, TrainError> {
        let Some((kind, index)) = card(device) else { return Ok(Self(None)) };
        let mut numbers = Numbers::default();
        // SAFETY: writes numbers, or a message.
        checked(|message, capacity| unsafe {
            segue_stream_beside(kind, index, &mut numbers, message, capacity)
        })?;
        Ok(Self(Some(numbers)))
    }

    /// The one that this thread uses.
    pub fn current(device: Device) -> Result<Self, TrainError> {
        let Some((kind, index)) = card(device) else { return Ok(Self(None)) };
        let mut numbers = Numbers::default();
        // SAFETY: writes numbers, or a message.
        checked(|message, capacity| unsafe {
            segue_stream_current(kind, index, &mut numbers, message, capacity)
        })?;
        Ok(Self(Some(numbers)))
    }

    /// Keeps memory that was taken on another stream until this one is through with it.
    fn keep(&self, tensor: &Tensor) -> Result<(), TrainError> {
        let Some(numbers) = self.0 else { return Ok(()) };
        // SAFETY: the tensor is there; reads numbers, or writes a message.
        checked(|message, capacity| unsafe { segue_stream_keep(&numbers, cpp(tensor), message, capacity) })
    }

    /// Lets this thread queue its work here until what is returned is dropped, and makes the stream's card its own.
    pub fn enter(&self) -> Result<Entered, TrainError> {
        let Some(numbers) = self.0 else { return Ok(Entered(None, PhantomData)) };
        let mut before = Numbers::default();
        // SAFETY: reads and writes numbers, or writes a message.
        checked(|message, capacity| unsafe { segue_stream_enter(&numbers, &mut before, message, capacity) })?;
        Ok(Entered(Some(before), PhantomData))
    }

    /// Lets what is queued here from now on wait until `event` has passed.
    pub fn wait_for(&self, event: &Event) -> Result<(), TrainError> {
        let (Some(numbers), Some(event)) = (self.0, event.0) else { return Ok(()) };
        // SAFETY: the event is there as long as its owner; reads numbers, or writes a message.
        checked(|message, capacity| unsafe { segue_event_block(event.as_ptr(), &numbers, message, capacity) })
    }

    /// What the card's driver calls it; null on the processor.
    pub fn native(&self) -> Result<*mut c_void, TrainError> {
        let Some(numbers) = self.0 else { return Ok(null_mut()) };
        let mut native = null_mut();
        // SAFETY: reads numbers, writes a pointer or a message.
        checked(|message, capacity| unsafe {
            segue_stream_native(&numbers, &mut native, message, capacity)
        })?;
        Ok(native)
    }
}

/// While this is there its thread queues work on a stream of its own.
pub struct Entered(Option<Numbers>, PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let mut left = Numbers::default();
            // SAFETY: as in `enter`. Going back to what was in use cannot fail.
            let back =
                |message, capacity| unsafe { segue_stream_enter(&before, &mut left, message, capacity) };
            let _ = checked(back);
        }
    }
}

/// `tensor` on `device`. To a card it goes beside what this thread has queued there, from memory that the card reads by itself; what the thread
/// queues from now on waits for it.
pub fn put(tensor: Tensor, device: Device) -> Tensor {
    if card(device).is_none() || tensor.device() != Device::Cpu {
        return tensor.to_device(device);
    }
    // Where there is no such memory left the copy takes its time.
    put_beside(&tensor, device).unwrap_or_else(|_| tensor.to_device(device))
}

fn put_beside(tensor: &Tensor, device: Device) -> Result<Tensor, TrainError> {
    let readable = pinned(tensor)?;
    let entered = copying(device)?.enter()?;
    let there = readable.f_to_device_(device, tensor.kind(), true, false)?;
    let over = Event::now(device)?;
    drop(entered);
    let own = Stream::current(device)?;
    own.wait_for(&over)?;
    own.keep(&there)?;
    Ok(there)
}

thread_local! {
    /// The stream of this thread's copies, and its card. libtorch keeps memory by stream: with one for each copy it would hold that of all of them.
    static COPYING: Cell<Option<(Device, Stream)>> = const { Cell::new(None) };
}

/// The stream of this thread's copies to `device`.
fn copying(device: Device) -> Result<Stream, TrainError> {
    if let Some((of, stream)) = COPYING.get()
        && of == device
    {
        return Ok(stream);
    }
    let stream = Stream::beside(device)?;
    COPYING.set(Some((device, stream)));
    Ok(stream)
}

/// A copy of `tensor` in memory of the host that cards read and write by themselves.
pub fn pinned(tensor: &Tensor) -> Result<Tensor, TrainError> {
    let mut copy = null_mut();
    // SAFETY: the tensor is there; writes a tensor or a message.
    checked(|message, capacity| unsafe { segue_pinned(cpp(tensor), &mut copy, message, capacity) })?;
    // SAFETY: a tensor that nothing else owns, and `CppTensor` is the type behind tch's pointer.
    Ok(unsafe { Tensor::from_ptr(copy as *mut _) })
}

/// Copies `from` into `to`, which has its size, behind what this thread has queued on its card. It is there when an [`Event`] behind it has passed; of the
/// processor's memory at once.
pub fn copy_queued(from: &Tensor, to: &Tensor) -> Result<(), TrainError> {
    // SAFETY: both tensors are there; copies, or writes a message.
    checked(|message, capacity| unsafe { segue_copy_queued(cpp(to), cpp(from), message, capacity) })
}

/// The most bytes that tensors on `device` have taken at once so far; `None` for a processor, where nobody counts them.
pub fn peak_bytes(device: Device) -> Result<Option<u64>, TrainError> {
    let Some((kind, index)) = card(device) else { return Ok(None) };
    let mut bytes = 0;
    // SAFETY: writes a number or a message.
    checked(|message, capacity| unsafe { segue_peak_bytes(kind, index, &mut bytes, message, capacity) })?;
    Ok(Some(bytes as u64))
}

/// A mark behind what a thread has queued.
#[derive(Debug)]
pub struct Event(Option<NonNull<CppEvent>>);

// SAFETY: an event is recorded once, by the thread that makes it; waiting for it and asking for it change nothing of it.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Behind all that this thread has queued on `device`.
    pub fn now(device: Device) -> Result<Self, TrainError> {
        let Some((kind, index)) = card(device) else { return Ok(Self(None)) };
        let mut event = null_mut();
        // SAFETY: writes a pointer or a message.
        checked(|message, capacity| unsafe { segue_event_now(kind, index, &mut event, message, capacity) })?;
        Ok(Self(NonNull::new(event)))
    }

    /// Whether the card has come that far.
    pub fn has_passed(&self) -> Result<bool, TrainError> {
        let Some(event) = self.0 else { return Ok(true) };
        let mut passed = false;
        // SAFETY: the event is ours; writes a flag or a message.
        checked(|message, capacity| unsafe {
            segue_event_query(event.as_ptr(), &mut passed, message, capacity)
        })?;
        Ok(passed)
    }

    /// Waits until the card has come that far.
    pub fn wait(&self) -> Result<(), TrainError> {
        while !self.has_passed()? {
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(event) = self.0 {
            // SAFETY: given back once. What waits for it on a card does not need it any more.
            unsafe { segue_event_free(event.as_ptr()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_the_processor_all_has_passed_and_nothing_is_entered() {
        let (stream, event) = (Stream::beside(Device::Cpu).unwrap(), Event::now(Device::Cpu).unwrap());
        stream.wait_for(&event).unwrap();
        let _entered = stream.enter().unwrap();
        let values = Tensor::from_slice(&[1f32, 2.0]);
        let (before, there) = (values.data_ptr(), put(values, Device::Cpu));
        assert_eq!(there.data_ptr(), before, "nothing is copied");
        event.wait().unwrap();
        assert!(event.has_passed().unwrap() && stream.native().unwrap().is_null());
        assert_eq!(peak_bytes(Device::Cpu).unwrap(), None);
    }

    /// libtorch's part for cards is not in this process: that is an error, not its end.
    #[test]
    fn a_card_that_is_not_there_is_an_error() {
        if tch::Cuda::is_available() {
            return;
        }
        let message = |error: TrainError| error.to_string().to_lowercase();
        assert!(message(Stream::beside(Device::Cuda(0)).unwrap_err()).contains("cuda"));
        assert!(message(Event::now(Device::Cuda(0)).unwrap_err()).contains("cuda"));
        assert!(pinned(&Tensor::from_slice(&[1f32])).is_err());
        assert!(message(peak_bytes(Device::Cuda(0)).unwrap_err()).contains("cuda"));
    }
}
