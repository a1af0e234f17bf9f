//! Margins that are differentiated by the lengths of words: what each target's row gets from its margin is added, in place, to the gradient that
//! scores give the table. Automatic differentiation would make a second gradient of the table's size for it, zero but for those rows.

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use segue_kernels::libtorch::{Called, functions, widened};
use tch::Tensor;

const ADVICE: &CStr = c"choose another adversarial.gradient";

/// Gradients of some rows of a table.
struct OfRows {
    /// Which, `[n]`; a row may come several times.
    numbers: Tensor,
    /// `[n, width]`
    rows: Tensor,
}

impl OfRows {
    /// Adds them to the gradient of the whole table, `[words, width]`, in an order that is the same every time.
    fn add_to(&self, table: &mut Tensor) {
        let rows = self.rows.to_kind(table.kind());
        if table.device().is_cuda() {
            // Sorted by row, where adding to an index races.
            _ = table.index_put_(&[Some(&self.numbers)], &rows, true);
        } else {
            // One after another.
            _ = table.index_add_(0, &self.numbers, &rows);
        }
    }
}

/// A table of words, `[words, width]`, once more in the graph, between the table and what reads it.
pub struct Table {
    weight: Tensor,
    of_margins: Arc<Mutex<Option<OfRows>>>,
}

impl Table {
    pub fn of(weight: &Tensor) -> Self {
        let of_margins = Arc::new(Mutex::new(None::<OfRows>));
        let left = of_margins.clone();
        let add = move |grads: Vec<Option<Tensor>>| {
            let Some(mut grad) = grads.into_iter().next().flatten() else { return vec![None] };
            if let Some(of_rows) = left.lock().unwrap_or_else(PoisonError::into_inner).take() {
                of_rows.add_to(&mut grad);
            }
            vec![Some(grad)]
        };
        let again = weight.detach();
        functions(Called { name: c"a table of words", advice: ADVICE }, &[weight], &[&again], add);
        Self { weight: again, of_margins }
    }

    /// `margins`, `[n]`, which are in proportion to the lengths of `rows`, `[n, width]`, of the words `numbers`, `[n]`: with a graph of what those
    /// lengths do, and the table as everything else is to read it.
    pub fn differentiated(self, margins: Tensor, numbers: &Tensor, rows: &Tensor) -> (Tensor, Tensor) {
        let Self { weight, of_margins } = self;
        let value = margins.detach();
        let (numbers, rows, of) = (numbers.shallow_clone(), widened(rows), margins.detach());
        let gradient = move |grads: Vec<Option<Tensor>>| {
            let Some(grad) = grads.into_iter().next().flatten() else { return vec![None, None] };
            // The length of w grows by w / ‖w‖, and m in proportion; a word of no length has no margin.
            let squares =
                rows.square().sum_dim_intlist(-1, false, rows.kind()).clamp_min(f64::from(f32::MIN_POSITIVE));
            let of_rows = OfRows { numbers, rows: rows * (&grad * of / squares).unsqueeze(-1) };
            *of_margins.lock().unwrap_or_else(PoisonError::into_inner) = Some(of_rows);
            // The table gets them below, after what reads it: it waits for this as well, as an input.
            vec![Some(grad), None]
        };
        let called = Called { name: c"a margin of words", advice: ADVICE };
        functions(called, &[&margins, &weight], &[&value], gradient);
        (value, weight)
    }
}
