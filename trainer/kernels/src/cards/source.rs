use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use super::compiler::Compiler;
use super::driver::{Card, Module};

/// What comes before every source.
const PRELUDE: &str = include_str!("prelude.cu");

/// Most threads of a grid's first axis, where they share values.
const MOST_BLOCKS: i64 = 1 << 16;
/// Threads of a block, a multiple of 32.
pub const THREADS: u32 = 256;

/// Kernels of one subject.
pub struct Source {
    name: &'static str,
    text: &'static str,
    needs: Needs,
    /// By the number of the card: what it has loaded, or why it has nothing.
    loaded: Mutex<Option<HashMap<usize, Result<Module, String>>>>,
}

/// What a card must have for the kernels of a source.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Compute capability, such as 80 for 8.0.
    pub capability: i32,
    /// Bytes of shared memory that a block takes.
    pub shared: u32,
}

impl Needs {
    const NOTHING: Self = Self { capability: 0, shared: 0 };

    /// What a card lacks that has this.
    fn lacking(self, card: Self) -> Result<(), String> {
        let version = |capability: i32| format!("{}.{}", capability / 10, capability % 10);
        if card.capability < self.capability {
            return Err(format!(
                "compute capability {}, needs {}",
                version(card.capability),
                version(self.capability)
            ));
        }
        if card.shared < self.shared {
            return Err(format!("{} bytes of shared memory for a block, needs {}", card.shared, self.shared));
        }
        Ok(())
    }
}

/// Pointers to all arguments of a kernel, as the driver takes them.
#[macro_export]
macro_rules! params {
    ($($argument:expr),* $(,)?) => { &mut [$((&raw const $argument).cast_mut().cast::<std::ffi::c_void>()),*] };
}
pub use params;

/// What kernels are called that are for numbers of this kind; `None` where there are none.
pub fn kind_name(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Float => Some("f32"),
        Kind::BFloat16 => Some("bf16"),
        Kind::Half => Some("f16"),
        _ => None,
    }
}

/// The kernels of a source where some tensor lies.
#[derive(Clone, Copy)]
pub struct Kernels {
    source: &'static Source,
    device: Device,
}

impl Source {
    /// `text` is CUDA that the prelude comes before; `name` stands in errors.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self::needing(Needs::NOTHING, name, text)
    }

    /// The same for cards that have what it `needs`; others are not asked to compile it.
    pub const fn needing(needs: Needs, name: &'static str, text: &'static str) -> Self {
        Self { name, text, needs, loaded: Mutex::new(None) }
    }

    /// Its kernels for where `x` lies; `None` where there are none. The first call for a card compiles them.
    pub fn kernels(&'static self, x: &Tensor) -> Option<Kernels> {
        let device = x.device();
        let there = match device {
            Device::Cuda(index) => self.with(index, |module| module.is_some()),
            Device::Cpu => super::substitute::is_on(),
            _ => false,
        };
        there.then_some(Kernels { source: self, device })
    }

    /// Whether the card where `x` lies has what the kernels need; false on a processor.
    pub fn is_for(&self, x: &Tensor) -> bool {
        match x.device() {
            Device::Cuda(index) => Card::new(index).is_ok_and(|card| self.lacking(&card).is_ok()),
            _ => false,
        }
    }

    /// Whether a card has loaded its kernels.
    pub fn is_loaded(&self) -> bool {
        self.loaded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .flatten()
            .any(|(_, module)| module.is_ok())
    }

    /// Why cards have no kernels of it where a tensor on them was worked on, a reason each.
    pub fn failures(&self) -> Vec<String> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.iter().flatten().filter_map(|(_, module)| module.as_ref().err().cloned()).collect()
    }

    /// What stands in errors.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What a card of this compute capability, such as 90 for 9.0, loads; otherwise what the compiler says.
    pub fn compiled(&self, compiler: &Compiler, capability: i32) -> Result<Vec<u8>, String> {
        let file = format!("{}.cu", self.name);
        // Lines of messages are those of the file.
        let text = format!("{PRELUDE}\n#line 1 \"{file}\"\n{}", self.text);
        compiler.compiled(&file, &text, capability)
    }

    fn with<T>(&self, index: usize, f: impl FnOnce(Option<&Module>) -> T) -> T {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let module = loaded.get_or_insert_default().entry(index).or_insert_with(|| self.load(index));
        f(module.as_ref().ok())
    }

    fn load(&self, index: usize) -> Result<Module, String> {
        let card = Card::new(index)?;
        let of_card = |why: String| format!("{}: {why}", card.name);
        self.lacking(&card).map_err(of_card)?;
        let code = self.compiled(Compiler::get()?, card.capability).map_err(of_card)?;
        card.load(&code).map_err(of_card)
    }

    fn lacking(&self, card: &Card) -> Result<(), String> {
        self.needs.lacking(Needs { capability: card.capability, shared: card.most_shared })
    }
}

impl Kernels {
    /// Starts a kernel with a grid of so many blocks of so many threads.
    ///
    /// # Safety
    ///
    /// `arguments`, made by [`params!`], are of the types that the kernel takes, in its order; it reads and writes only inside of tensors that
    /// lie where these kernels are for, and of which those that it writes are nobody else's meanwhile.
    ///
    /// # Panics
    ///
    /// Where it cannot be started: the source has no such kernel, or the card is lost.
    pub unsafe fn launch(self, kernel: &str, grid: [i64; 2], threads: u32, arguments: &mut [*mut c_void]) {
        // SAFETY: the caller's.
        unsafe { self.launch_sharing(kernel, grid, threads, 0, arguments) }
    }

    /// The same with `shared` bytes of memory that the threads of a block share, beside what the kernel declares.
    ///
    /// # Safety
    ///
    /// As [`Kernels::launch`]; the kernel uses no more of that memory.
    ///
    /// # Panics
    ///
    /// As [`Kernels::launch`], and where a card has less.
    pub unsafe fn launch_sharing(
        self,
        kernel: &str,
        grid: [i64; 2],
        threads: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) {
        let grid = grid.map(|blocks| u32::try_from(blocks).expect("as many blocks as a grid has"));
        // A grid of none is an error for a card.
        if grid.contains(&0) {
            return;
        }
        let failed =
            |name: &str, why: String| panic!("kernel {kernel} of {}.cu on {name}: {why}", self.source.name);
        match self.device {
            Device::Cuda(index) => self.source.with(index, |module| {
                let Some(module) = module else { unreachable!("kernels are there where a module is") };
                // SAFETY: the caller's.
                let launched = unsafe { module.launch(kernel, grid, threads, shared, arguments) };
                launched.unwrap_or_else(|why| failed(&module.card().name, why));
            }),
            // SAFETY: the caller's.
            Device::Cpu => unsafe { super::substitute::launch(kernel, grid, threads, arguments) }
                .unwrap_or_else(|why| failed("no card", why)),
            _ => unreachable!("kernels are for cards"),
        }
    }

    /// Starts a kernel whose threads share `count` values, some each.
    ///
    /// # Safety
    ///
    /// As [`Kernels::launch`].
    pub unsafe fn launch_for_values(self, kernel: &str, count: i64, arguments: &mut [*mut c_void]) {
        let blocks = (count as u64).div_ceil(THREADS.into()) as i64;
        // SAFETY: the caller's.
        unsafe { self.launch(kernel, [blocks.min(MOST_BLOCKS), 1], THREADS, arguments) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No host has as many.
    const CARD: usize = 9999;

    #[test]
    fn a_card_without_kernels_of_a_source_says_why() {
        static SOURCE: Source = Source::new("nothing", "");
        assert!(SOURCE.failures().is_empty());
        assert!(SOURCE.with(CARD, |module| module.is_none()));
        let why = SOURCE.failures();
        assert!(why.len() == 1 && !why[0].is_empty() && !SOURCE.is_loaded(), "{why:?}");
    }

    /// A T4 has 7.5 and 64 KiB, an A100 8.0 and 163 KiB.
    #[test]
    fn what_a_card_lacks_is_told_before_it_compiles() {
        let needs = Needs { capability: 80, shared: 107_000 };
        let lacking = |capability, shared| needs.lacking(Needs { capability, shared });
        assert_eq!(lacking(75, 65_536), Err("compute capability 7.5, needs 8.0".into()));
        assert_eq!(
            lacking(86, 101_376),
            Err("101376 bytes of shared memory for a block, needs 107000".into())
        );
        assert_eq!((lacking(80, 166_912), lacking(120, 107_000)), (Ok(()), Ok(())));
    }
}
