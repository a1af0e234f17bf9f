//! The tile instructions, which the compiler has no functions for yet.

use std::arch::asm;

use super::{BLOCK, DEPTH, LANES, Line, Panels, Part};
use crate::libtorch::Rows;

/// Bytes of a line and of a tile.
const LINE: usize = size_of::<Line>();
const TILE: usize = LANES * LINE;

/// Whether the processor has tiles of bfloat16, and the system lets this process use them.
pub fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    const TILE_AND_BF16: u32 = 1 << 24 | 1 << 22;
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    // SAFETY: asks for a state that is larger, and changes nothing where it is refused.
    features & TILE_AND_BF16 == TILE_AND_BF16
        && unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) } == 0
}

/// Shapes of the eight tiles, as the processor reads them.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_of_line: [u16; 16],
    lines: [u8; 16],
}

static SHAPES: Shapes = {
    let (mut bytes_of_line, mut lines) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (bytes_of_line[tile], lines[tile]) = (LINE as u16, LANES as u8);
        tile += 1;
    }
    Shapes { palette: 1, start_row: 0, reserved: [0; 14], bytes_of_line, lines }
};

/// Tiles of whole size on this thread, until it is dropped.
struct Tiles;

impl Tiles {
    /// # Safety
    ///
    /// The system must permit tiles.
    unsafe fn new() -> Self {
        // SAFETY: the caller's.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &SHAPES, options(nostack, readonly, preserves_flags)) };
        Self
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: there are tiles, as this exists.
        unsafe { asm!("tilerelease", options(nostack, nomem, preserves_flags)) };
    }
}

/// `to` `[m, n]` = so many steps of panels of the left side times those of the right one, or that much more.
///
/// # Safety
///
/// As of [`super::product`].
pub unsafe fn multiply(
    left: Part<'_>,
    right: Part<'_>,
    steps: usize,
    [m, n]: [usize; 2],
    to: Rows<*mut f32>,
    add: bool,
) {
    // A block needs the lines of two panels.
    let two = |side: Part<'_>, first: usize| {
        side.lines[first / LANES * side.panel..][..side.panel + steps * Panels::STEP].as_ptr()
    };
    let panels = [left.panel, right.panel];
    let mut rest = [0f32; BLOCK * BLOCK];
    // SAFETY: the caller's.
    let _tiles = unsafe { Tiles::new() };
    for column in (0..n).step_by(BLOCK) {
        let b = two(right, column);
        for row in (0..m).step_by(BLOCK) {
            let a = two(left, row);
            let sides = [BLOCK.min(m - row), BLOCK.min(n - column)];
            // SAFETY: so many steps of two panels of each side, as the slices show, and a block of the product, which lies in `to`, or in `rest`
            // where it is not whole.
            unsafe {
                let to = Rows { start: to.start.add(row * to.stride + column), stride: to.stride };
                if sides == [BLOCK; 2] {
                    block(steps, [a, b], panels, to, add);
                    continue;
                }
                let rest = Rows { start: rest.as_mut_ptr(), stride: BLOCK };
                if add {
                    copy(to, rest, sides);
                }
                block(steps, [a, b], panels, rest, add);
                copy(rest, to, sides);
            }
        }
    }
}

/// # Safety
///
/// Both have so many rows of so many values.
unsafe fn copy(from: Rows<*mut f32>, to: Rows<*mut f32>, [rows, columns]: [usize; 2]) {
    for row in 0..rows {
        // SAFETY: the caller's.
        unsafe {
            let (from, to) = (from.start.add(row * from.stride), to.start.add(row * to.stride));
            to.copy_from_nonoverlapping(from, columns);
        }
    }
}

/// `to`, a whole block, = two panels of each side multiplied, or that much more.
///
/// Four tiles hold the sums, two a part of the left panels, two one of the right. Of parts 0, 1 and 2, largest first, the products are
/// 00, 20, 10, 11, 01 and 02: each step of the way changes one side alone.
///
/// # Safety
///
/// There is a step at least; so many of both panels of a side lie as many lines apart as it says, and this thread has its tiles.
#[inline(always)]
unsafe fn block(steps: usize, [a, b]: [*const Line; 2], panels: [usize; 2], to: Rows<*mut f32>, add: bool) {
    let below = to.start.wrapping_add(LANES * to.stride);
    // SAFETY: reads whole tiles inside the panels, and reads and writes whole ones inside the block.
    unsafe {
        asm!(
            "test {add}, {add}",
            "jnz 2f",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "jmp 3f",
            "2:",
            "tileloadd tmm0, [{above} + {stride}]", "tileloadd tmm1, [{above} + {stride} + {line}]",
            "tileloadd tmm2, [{below} + {stride}]", "tileloadd tmm3, [{below} + {stride} + {line}]",
            "3:",
            "tileloadd tmm6, [{b0} + {next}]", "tileloadd tmm4, [{a0} + {next}]",
            "tileloadd tmm7, [{b1} + {next}]", "tileloadd tmm5, [{a1} + {next}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a0} + {next} + 2*{tile}]",
            "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a1} + {next} + 2*{tile}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a0} + {next} + {tile}]",
            "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a1} + {next} + {tile}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{b0} + {next} + {tile}]",
            "tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{b1} + {next} + {tile}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm4, [{a0} + {next}]",
            "tdpbf16ps tmm2, tmm5, tmm6", "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm5, [{a1} + {next}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm6, [{b0} + {next} + 2*{tile}]",
            "tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm7, [{b1} + {next} + 2*{tile}]",
            "tdpbf16ps tmm0, tmm4, tmm6", "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7", "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a0}, 3*{tile}", "add {a1}, 3*{tile}", "add {b0}, 3*{tile}", "add {b1}, 3*{tile}",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{above} + {stride}], tmm0", "tilestored [{above} + {stride} + {line}], tmm1",
            "tilestored [{below} + {stride}], tmm2", "tilestored [{below} + {stride} + {line}], tmm3",
            add = in(reg) u64::from(add),
            above = in(reg) to.start, below = in(reg) below, stride = in(reg) to.stride * size_of::<f32>(),
            a0 = inout(reg) a => _, a1 = inout(reg) a.wrapping_add(panels[0]) => _,
            b0 = inout(reg) b => _, b1 = inout(reg) b.wrapping_add(panels[1]) => _,
            steps = inout(reg) steps => _, next = in(reg) LINE, line = const LINE, tile = const TILE,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _, options(nostack),
        );
    }
}

const _: () = assert!(LINE == 2 * DEPTH && TILE == 1024);
