//! Where the values of tensors lie, and what the C allocator does with them once they are gone.

unsafe extern "C" {
    fn segue_use_heap();
}

/// Lets tensors on the processor begin where freed ones of their size did. Not while another thread computes: what oneDNN has borrowed from the allocator before it would
/// give back to this one.
pub fn place_tensors() {
    // SAFETY: takes nothing; of threads that make tensors there is no other yet, as commands call this before they compute. Tensors that are there
    // give their memory back to where they have it from.
    unsafe { segue_use_heap() }
}

/// Blocks up to this size are taken from the heap and kept there when freed, instead of being mapped,
/// zeroed page by page and unmapped again at each use.
const KEPT_BLOCK_BYTES: libc::c_int = 1 << 30;

/// Makes the C allocator keep the memory of tensors for the next step. On a step of 2 × 8 lanes of 128
/// tokens, width 256, it saves 5 %. What was freed before goes back: pieces that files were read into are of no use to tensors.
pub fn keep_freed_memory() {
    // SAFETY: plain calls of the C library; a value it refuses leaves it as it was.
    unsafe {
        libc::malloc_trim(0);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_TOP_PAD, KEPT_BLOCK_BYTES / 4);
    }
}
