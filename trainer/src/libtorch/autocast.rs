//! libtorch's mixed precision: which operations of this thread are cast, and to what.

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

    /// Casts of operations on the CPU to `kind`.
    #[cfg(test)]
    pub(crate) fn of_cpu(kind: tch::Kind) -> Self {
        assert_eq!(kind, tch::Kind::BFloat16);
        /// libtorch's number of the type.
        const BFLOAT16: i32 = 15;
        Self { cpu: Casts { enabled: true, kind: BFLOAT16 }, ..Self::current() }
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
