use std::marker::PhantomData;
use std::ops::Deref;

use bytemuck::AnyBitPattern;
use segue_foreign::SharedBytes;

// Files are little-endian and are used where they lie.
const _: () = assert!(cfg!(target_endian = "little"));

/// Numbers in memory, or in a file that is mapped.
#[derive(Debug)]
pub(crate) enum Numbers<T> {
    Owned(Vec<T>),
    /// Whole and aligned numbers: [`Numbers::mapped`] has checked.
    Mapped(SharedBytes, PhantomData<T>),
}

impl<T: AnyBitPattern> Numbers<T> {
    /// Numbers that lie in `bytes`, whose length is a multiple of theirs; copied where they are not aligned.
    pub fn mapped(bytes: SharedBytes) -> Self {
        match bytemuck::try_cast_slice::<u8, T>(&bytes) {
            Ok(_) => Numbers::Mapped(bytes, PhantomData),
            Err(_) => Numbers::Owned(
                bytes.chunks_exact(size_of::<T>()).map(|word| bytemuck::pod_read_unaligned(word)).collect(),
            ),
        }
    }
}

impl<T: AnyBitPattern> Deref for Numbers<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Numbers::Owned(numbers) => numbers,
            Numbers::Mapped(bytes, _) => bytemuck::cast_slice(bytes),
        }
    }
}

impl<T: AnyBitPattern> From<Vec<T>> for Numbers<T> {
    fn from(numbers: Vec<T>) -> Self {
        Numbers::Owned(numbers)
    }
}

impl<T: AnyBitPattern> Clone for Numbers<T> {
    fn clone(&self) -> Self {
        match self {
            Numbers::Owned(numbers) => Numbers::Owned(numbers.clone()),
            Numbers::Mapped(bytes, kind) => Numbers::Mapped(bytes.clone(), *kind),
        }
    }
}
