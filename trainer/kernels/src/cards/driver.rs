//! NVIDIA's driver: modules of kernels, and their start in libtorch's context and on its stream.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use tch::Device;

use super::compiler::Compiler;
use super::library::{functions, open};
use crate::libtorch::device;
use crate::libtorch::stream::Stream;

const MAJOR: c_int = 75;
const MINOR: c_int = 76;
/// Of a card: bytes of shared memory that a block may ask for.
const MOST_SHARED: c_int = 97;
/// Of a kernel: bytes of shared memory that it may be started with.
const MAX_SHARED: c_int = 8;
/// Of a kernel: percent of a multiprocessor's memory for caches and sharing that is wanted for the latter.
const SHARED_PART: c_int = 9;
/// What it may be started with by itself.
const SHARED: u32 = 48 << 10;

functions! {
    /// What is used of the driver. Each function gives 0, or the number of an error.
    pub struct Driver {
        card: b"cuDeviceGet\0" fn(*mut c_int, c_int);
        name: b"cuDeviceGetName\0" fn(*mut c_char, c_int, c_int);
        attribute: b"cuDeviceGetAttribute\0" fn(*mut c_int, c_int, c_int);
        retain: b"cuDevicePrimaryCtxRetain\0" fn(*mut *mut c_void, c_int);
        push: b"cuCtxPushCurrent_v2\0" fn(*mut c_void);
        pop: b"cuCtxPopCurrent_v2\0" fn(*mut *mut c_void);
        load: b"cuModuleLoadData\0" fn(*mut *mut c_void, *const c_void);
        function: b"cuModuleGetFunction\0" fn(*mut *mut c_void, *mut c_void, *const c_char);
        set: b"cuFuncSetAttribute\0" fn(*mut c_void, c_int, c_int);
        launch: b"cuLaunchKernel\0" fn(*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void, *mut *mut c_void, *mut *mut c_void);
        error_text: b"cuGetErrorString\0" fn(c_int, *mut *const c_char);
    }
}

/// A card, and the context on it that libtorch uses.
#[derive(Clone)]
pub struct Card {
    driver: &'static Driver,
    index: usize,
    context: *mut c_void,
    /// What the driver calls it.
    pub name: String,
    /// Compute capability, such as 90 for 9.0.
    pub capability: i32,
    /// Bytes of shared memory that a block may have.
    pub most_shared: u32,
}

// SAFETY: a context may be made current on any thread, and is never destroyed here.
unsafe impl Send for Card {}

/// Kernels that a card has loaded, for the rest of the process.
pub struct Module {
    card: Card,
    module: *mut c_void,
    /// Its kernels by name, as far as they were started.
    functions: RefCell<HashMap<String, *mut c_void>>,
}

// SAFETY: modules are looked up by any thread, one at a time: their owner is behind a lock.
unsafe impl Send for Module {}

impl Driver {
    fn get() -> Result<&'static Self, &'static str> {
        static FOUND: OnceLock<Result<Driver, String>> = OnceLock::new();
        // SAFETY: the types are those of cuda.h; handles are pointers, but for those of devices, which are numbers.
        let found = FOUND.get_or_init(|| unsafe { Self::of(open(&[PathBuf::from(device::DRIVER)], None)?) });
        found.as_ref().map_err(String::as_str)
    }

    fn checked(&self, result: c_int) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        let mut text = ptr::null();
        // SAFETY: writes where a text of the driver's is, which lives as long as it.
        let said = unsafe {
            match (self.error_text)(result, &mut text) == 0 && !text.is_null() {
                true => CStr::from_ptr(text).to_string_lossy().into_owned(),
                false => "it says no more".into(),
            }
        };
        Err(format!("the driver's error {result}: {said}"))
    }
}

impl Card {
    /// Number `index` of this process, which libtorch has used before.
    pub fn new(index: usize) -> Result<Self, String> {
        let driver = Driver::get()?;
        let (mut card, mut context, mut name) = (0, ptr::null_mut(), [0 as c_char; 128]);
        let (mut capability, mut most_shared) = ([0; 2], 0);
        // SAFETY: each writes where it is told to, the name with an end in as many bytes as are said.
        unsafe {
            driver.checked((driver.card)(&mut card, index as c_int))?;
            driver.checked((driver.name)(name.as_mut_ptr(), name.len() as c_int - 1, card))?;
            driver.checked((driver.attribute)(&mut capability[0], MAJOR, card))?;
            driver.checked((driver.attribute)(&mut capability[1], MINOR, card))?;
            driver.checked((driver.attribute)(&mut most_shared, MOST_SHARED, card))?;
            driver.checked((driver.retain)(&mut context, card))?;
        }
        // SAFETY: ends with 0, the last byte at the latest.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let capability = capability[0] * 10 + capability[1];
        Ok(Self { driver, index, context, name, capability, most_shared: most_shared.max(0) as u32 })
    }

    /// Loads what was compiled for it.
    pub fn load(&self, code: &[u8]) -> Result<Module, String> {
        let mut module = ptr::null_mut();
        // A text ends with 0; what is executed knows its own length.
        // SAFETY: the compiler's output for this card.
        self.current(|| unsafe { (self.driver.load)(&mut module, code.as_ptr().cast()) })?;
        Ok(Module { card: self.clone(), module, functions: RefCell::default() })
    }

    /// Calls `f` with the context current, as it was before on this thread or not.
    fn current(&self, f: impl FnOnce() -> c_int) -> Result<(), String> {
        let driver = self.driver;
        // SAFETY: a context that is kept to the end. What is pushed is popped again.
        unsafe {
            driver.checked((driver.push)(self.context))?;
            let result = f();
            driver.checked((driver.pop)(&mut ptr::null_mut()))?;
            driver.checked(result)
        }
    }
}

/// Name of card `index` of this process, which libtorch has used before, and whether it goes without kernels of our own.
pub fn describe(index: usize) -> Result<String, String> {
    let name = Card::new(index)?.name;
    Ok(if Compiler::get().is_ok() { name } else { format!("{name}, without Segue's kernels") })
}

impl Module {
    /// The card it is on.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// What the driver calls a kernel that takes `shared` bytes of shared memory, always as many: it is asked for each once, as a module stays as
    /// it was loaded.
    fn function(&self, kernel: &str, shared: u32) -> Result<*mut c_void, String> {
        if let Some(known) = self.functions.borrow().get(kernel) {
            return Ok(*known);
        }
        let name = CString::new(kernel).map_err(|error| error.to_string())?;
        let mut function = ptr::null_mut();
        // SAFETY: a loaded module and a name that ends with 0.
        self.card
            .current(|| unsafe { (self.card.driver.function)(&mut function, self.module, name.as_ptr()) })?;
        if shared > SHARED {
            // SAFETY: a kernel of a loaded module.
            self.card.current(|| unsafe { (self.card.driver.set)(function, MAX_SHARED, shared as c_int) })?;
            // Room for as many blocks as there are registers for: by itself a card may leave that for one alone.
            // SAFETY: as above.
            self.card.current(|| unsafe { (self.card.driver.set)(function, SHARED_PART, 100) })?;
        }
        self.functions.borrow_mut().insert(kernel.to_string(), function);
        Ok(function)
    }

    /// Puts a kernel on libtorch's stream of this thread.
    ///
    /// # Safety
    ///
    /// `arguments` point to what the kernel takes, in order, and the kernel reads and writes only where tensors on this card are that live until
    /// it is put there: memory that is given back later on goes to work on the same stream.
    pub unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 2],
        threads: u32,
        shared: u32,
        arguments: &mut [*mut c_void],
    ) -> Result<(), String> {
        let (driver, function) = (self.card.driver, self.function(kernel, shared)?);
        let stream = Stream::current(Device::Cuda(self.card.index)).and_then(|stream| stream.native());
        let stream = stream.map_err(|error| error.to_string())?;
        // SAFETY: a kernel of a loaded module; then what the caller promises.
        self.card.current(|| unsafe {
            let [x, y] = grid;
            (driver.launch)(
                function,
                x,
                y,
                1,
                threads,
                1,
                1,
                shared,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static ASKED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn known(to: *mut *mut c_void, module: *mut c_void, name: *const c_char) -> c_int {
        ASKED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the driver's word: a place to write to, and a name that ends with 0.
        let length = unsafe { CStr::from_ptr(name) }.to_bytes().len();
        if length == 0 {
            return 500; // CUDA_ERROR_NOT_FOUND
        }
        // SAFETY: as above.
        unsafe { *to = module.wrapping_byte_add(length) };
        0
    }

    unsafe extern "C" fn current(_: *mut c_void) -> c_int {
        0
    }

    unsafe extern "C" fn before(_: *mut *mut c_void) -> c_int {
        0
    }

    unsafe extern "C" fn card(_: *mut c_int, _: c_int) -> c_int {
        unreachable!("no card is looked for")
    }

    unsafe extern "C" fn name(_: *mut c_char, _: c_int, _: c_int) -> c_int {
        unreachable!("no card is looked for")
    }

    unsafe extern "C" fn attribute(_: *mut c_int, _: c_int, _: c_int) -> c_int {
        unreachable!("no card is looked for")
    }

    unsafe extern "C" fn retain(_: *mut *mut c_void, _: c_int) -> c_int {
        unreachable!("no card is looked for")
    }

    unsafe extern "C" fn load(_: *mut *mut c_void, _: *const c_void) -> c_int {
        unreachable!("nothing is loaded")
    }

    #[allow(clippy::too_many_arguments)]
    unsafe extern "C" fn launch(
        _: *mut c_void,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: c_uint,
        _: *mut c_void,
        _: *mut *mut c_void,
        _: *mut *mut c_void,
    ) -> c_int {
        unreachable!("nothing is started")
    }

    unsafe extern "C" fn set(_: *mut c_void, _: c_int, _: c_int) -> c_int {
        unreachable!("no kernel takes more than the least")
    }

    unsafe extern "C" fn error_text(_: c_int, _: *mut *const c_char) -> c_int {
        1
    }

    #[test]
    fn a_kernel_is_looked_up_once() {
        let (function, push, pop) = (known, current, before);
        let driver = Box::leak(Box::new(Driver {
            card,
            name,
            attribute,
            retain,
            push,
            pop,
            load,
            function,
            set,
            launch,
            error_text,
        }));
        let context = ptr::null_mut();
        let card = Card { driver, index: 0, context, name: "a stub".into(), capability: 90, most_shared: 0 };
        let module = Module { card, module: 0x1000 as *mut c_void, functions: RefCell::default() };
        for _ in 0..3 {
            assert_eq!(module.function("norm", 0).unwrap() as usize, 0x1004);
            assert_eq!(module.function("masks", 0).unwrap() as usize, 0x1005);
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 2);
        // What was not found is asked for again.
        for asked in 3..5 {
            let why = module.function("", 0).unwrap_err();
            assert_eq!(
                (why.as_str(), ASKED.load(Ordering::SeqCst)),
                ("the driver's error 500: it says no more", asked)
            );
        }
    }
}
