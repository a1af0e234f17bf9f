//! libtorch's mixed precision: which operations of this thread are cast, and to what.
//!
//! Its lists of operations that stay in single precision differ between processors and cards, and a processor's leaves softmaxes and norms out.
//! So nothing here leans on them: what has to be precise is [`widened`] where it is computed.

use segue_configs::Precision;
use tch::{Device, Kind, Tensor};

unsafe extern "C" {
    fn segue_autocast(state: *mut Autocast);
    fn segue_set_autocast(state: *const Autocast);
    fn segue_forget_casts();
}

/// Whether operations on one kind of device are cast, and to which type of libtorch's.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Casts {
    enabled: bool,
    kind: i32,
}

/// The state of a thread. [`Autocast::current`] of a forward pass lets it be made again under the same one, on whatever thread.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Autocast {
    cpu: Casts,
    cuda: Casts,
    cached: bool,
}

impl Autocast {
    /// That of this thread.
    pub fn current() -> Self {
        let none = Casts { enabled: false, kind: 0 };
        let mut state = Self { cpu: none, cuda: none, cached: false };
        // SAFETY: fills a struct of the same layout.
        unsafe { segue_autocast(&mut state) };
        state
    }

    /// Casts of products on `device` to the type of `precision`; `None` where nothing is to be cast.
    pub fn to(precision: Precision, device: Device) -> Option<Self> {
        // libtorch's numbers of the types.
        let kind = match precision {
            Precision::F32 => return None,
            Precision::Fp16 => 5,
            Precision::Bf16 => 15,
        };
        let (mut state, casts) = (Self::current(), Casts { enabled: true, kind });
        match device {
            Device::Cpu => state.cpu = casts,
            _ => state.cuda = casts,
        }
        // Each use of a weight is cast by itself, so that gradients of several uses are added up in single precision, in an order that
        // does not depend on which layers are made again.
        state.cached = false;
        Some(state)
    }

    /// Whether operations of this thread on the CPU are cast.
    pub fn is_on_cpu() -> bool {
        Self::current().cpu.enabled
    }

    /// The type that operations of this thread on `device` are cast to, where they are.
    pub fn kind_on(device: Device) -> Option<Kind> {
        let state = Self::current();
        let casts = if device == Device::Cpu { state.cpu } else { state.cuda };
        match (casts.enabled, casts.kind) {
            (true, 5) => Some(Kind::Half),
            (true, 15) => Some(Kind::BFloat16),
            _ => None,
        }
    }

    /// Runs `f` without casts, whatever this thread casts otherwise.
    pub fn without<T>(f: impl FnOnce() -> T) -> T {
        let state = Self::current();
        if !state.cpu.enabled && !state.cuda.enabled {
            return f();
        }
        let off = |casts: Casts| Casts { enabled: false, ..casts };
        Self { cpu: off(state.cpu), cuda: off(state.cuda), ..state }.during(f)
    }

    /// Runs `f` under it, with casts of weights of its own: what was cast for others is part of their graph.
    pub fn during<T>(self, f: impl FnOnce() -> T) -> T {
        let _before = Before(Self::current());
        self.set();
        f()
    }

    fn set(&self) {
        // SAFETY: a struct of the same layout. Weights that were cast under another state are cast again where they are missed.
        unsafe {
            segue_set_autocast(self);
            segue_forget_casts();
        }
    }
}

/// What a thread goes back to, whatever becomes of what it does.
struct Before(Autocast);

impl Drop for Before {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// The type that sums and exponentials of values of this one are computed in: single precision at least.
pub fn precise(kind: Kind) -> Kind {
    match kind {
        Kind::Half | Kind::BFloat16 => Kind::Float,
        kind => kind,
    }
}

/// `x` in [`precise`] type; itself where it is of such a type.
pub fn widened(x: &Tensor) -> Tensor {
    x.to_kind(precise(x.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product() -> Kind {
        let x = Tensor::ones([2, 2], (Kind::Float, Device::Cpu));
        x.matmul(&x).kind()
    }

    #[test]
    fn casts_end_where_they_were_asked_for_and_on_their_own_thread() {
        assert!(Autocast::to(Precision::F32, Device::Cpu).is_none());
        for (precision, kind) in [(Precision::Bf16, Kind::BFloat16), (Precision::Fp16, Kind::Half)] {
            let casts = Autocast::to(precision, Device::Cpu).unwrap();
            let seen = casts.during(|| {
                let elsewhere = std::thread::spawn(product).join().unwrap();
                [product(), Autocast::without(product), product(), elsewhere]
            });
            assert_eq!(seen, [kind, Kind::Float, kind, Kind::Float]);
            assert_eq!(product(), Kind::Float);
            let panicked = std::panic::catch_unwind(|| casts.during(|| panic!("on purpose")));
            assert!(panicked.is_err() && product() == Kind::Float && !Autocast::is_on_cpu());
        }
        // What a card would cast is nothing to a processor.
        assert_eq!(Autocast::to(Precision::Bf16, Device::Cuda(0)).unwrap().during(product), Kind::Float);
    }

    #[test]
    fn gradients_of_several_uses_of_a_weight_are_added_up_in_single_precision() {
        let weight = Tensor::ones([1, 1], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let x = |value: f64| Tensor::full([1, 1], value, (Kind::Float, Device::Cpu));
        let y = Autocast::to(Precision::Bf16, Device::Cpu).unwrap().during(|| {
            x(256.0).matmul(&weight).to_kind(Kind::Float) + x(1.0).matmul(&weight).to_kind(Kind::Float)
        });
        y.sum(None::<Kind>).backward();
        // bfloat16 has no 257.
        assert_eq!(weight.grad().double_value(&[0, 0]), 257.0);
    }
}
