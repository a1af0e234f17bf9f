//! LAMB's update by kernels for cards: three for all parameters together, and nothing is read from there.

use segue_kernels::cards::{self, Source, THREADS, Table, params};
use tch::{Device, Kind, Tensor};

use super::step::Step;

/// LAMB's updates on cards.
pub static LAMB: Source = Source::new("optim/lamb", include_str!("../lamb.cu"));

/// Parameters that are updated together where they lie.
pub(super) struct Together {
    kernels: cards::Kernels,
    device: Device,
    table: Table,
}

impl Together {
    /// None yet of those that lie where `first` does; `None` where there are no kernels.
    pub(super) fn new(first: Option<&Tensor>) -> Option<Self> {
        let first = first?;
        Some(Self { kernels: LAMB.kernels(first)?, device: first.device(), table: Table::default() })
    }

    /// Takes a parameter, `[w, g, m, v]`, unless kernels are not made for it.
    pub(super) fn take(&mut self, tensors: &[&Tensor; 4], step: Step) -> bool {
        let count = tensors[0].numel();
        let made_for = |x: &&Tensor| {
            x.kind() == Kind::Float && x.device() == self.device && x.is_contiguous() && x.numel() == count
        };
        let takes = tensors.iter().all(made_for);
        if takes {
            self.table.push(tensors, &constants(step));
        }
        takes
    }

    /// Updates what it has taken. Spoils gradients.
    pub(super) fn update(self) {
        let Self { kernels, device, table } = self;
        if table.is_empty() {
            return;
        }
        let (rows, chunks, float) = (table.rows(), table.chunks(), (Kind::Float, device));
        let (squares, rates) = (Tensor::empty([chunks, 2], float), Tensor::empty([i64::from(rows)], float));
        let table = table.put(device);
        let [of_table, of_squares, of_rates] = [&table, &squares, &rates].map(Tensor::data_ptr);
        // SAFETY: rows are `LambRow`s, of f32 values that `take` has looked at; two squares for each chunk and a rate for each row. Who updates
        // parameters has their tensors alone.
        unsafe {
            kernels.launch("lamb_make", [chunks, 1], THREADS, params![of_table, rows, of_squares]);
            kernels.launch("lamb_rates", [rows.into(), 1], THREADS, params![of_table, of_squares, of_rates]);
            kernels.launch("lamb_take", [chunks, 1], THREADS, params![of_table, rows, of_rates]);
        }
    }
}

/// The constants of `LambRow` of lamb.cu, in its order.
fn constants(step: Step) -> [f32; 12] {
    let [first, second] = step.corrections;
    [
        step.divisor,
        step.beta1,
        step.beta2,
        1.0 - step.beta1,
        1.0 - step.beta2,
        1.0 / first,
        1.0 / second,
        step.eps,
        step.decay,
        step.lr,
        step.limit,
        f64::from(u8::from(step.adapted)),
    ]
    .map(|x| x as f32)
}
