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
    /// By the number of the card: what it has loaded, or none where it cannot.
    loaded: Mutex<Option<HashMap<usize, Option<Module>>>>,
}

/// Pointers to all arguments of a kernel, as the driver takes them.
macro_rules! params {
    ($($argument:expr),* $(,)?) => { &mut [$((&raw const $argument).cast_mut().cast::<std::ffi::c_void>()),*] };
}
pub(crate) use params;

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
        Self { name, text, loaded: Mutex::new(None) }
    }

    /// Its kernels for where `x` lies; `None` where there are none. The first call for a card compiles them.
    pub fn kernels(&'static self, x: &Tensor) -> Option<Kernels> {
        let device = x.device();
        let there = match device {
            Device::Cuda(index) => self.with(index, |module| module.is_some()),
            #[cfg(test)]
            Device::Cpu => super::emulated::is_on(),
            _ => false,
        };
        there.then_some(Kernels { source: self, device })
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
        let module = loaded.get_or_insert_default().entry(index).or_insert_with(|| match self.load(index) {
            Ok(module) => Some(module),
            Err(why) => {
                let source = self.name;
                tracing::warn!(
                    source,
                    card = index,
                    why,
                    "no kernels of our own: libtorch's operations are taken"
                );
                None
            }
        });
        f(module.as_ref())
    }

    fn load(&self, index: usize) -> Result<Module, String> {
        let card = Card::new(index)?;
        let of_card = |why: String| format!("{}: {why}", card.name);
        let code = self.compiled(Compiler::get()?, card.capability).map_err(of_card)?;
        card.load(&code).map_err(of_card)
    }
}

impl Kernels {
    /// Bytes of shared memory that a block may have.
    pub fn most_shared(self) -> u32 {
        match self.device {
            Device::Cuda(index) => {
                self.source.with(index, |module| module.map_or(0, |m| m.card().most_shared))
            }
            // What is made believe has room.
            _ => u32::MAX,
        }
    }

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
            #[cfg(test)]
            // SAFETY: the caller's.
            Device::Cpu => unsafe { super::emulated::launch(kernel, grid, threads, arguments) }
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
