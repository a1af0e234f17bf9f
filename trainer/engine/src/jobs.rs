//! What the communication thread is given to do.

use std::ops::Range;
use std::sync::Arc;

use segue_kernels::TrainError;
use segue_kernels::libtorch::stream::Event;
use segue_world::Sender;
use tch::Tensor;

use super::rows::Rows;
use super::shard::BucketShard;

/// One thing of these.
pub enum Job {
    /// Sum a bucket.
    Sum(Ready),
    /// Gather weights.
    Gather(Gather),
}

/// Weights of a bucket, of which each rank has updated its own.
pub struct Gather {
    /// All of them, flat.
    pub values: Tensor,
    /// Which of them each rank owns.
    pub slices: Arc<[Range<usize>]>,
    /// Numbers of the parameters.
    pub members: Range<usize>,
    /// A mark behind the update.
    pub made: Arc<Event>,
    /// Where it is said that they are here.
    pub bring: Sender<Range<usize>>,
}

/// A bucket whose sum over this rank's micro-steps is complete.
pub struct Ready {
    /// Its number; buckets come in the same order on all ranks.
    pub bucket: usize,
    /// The sum, f32, which nobody touches until the step ends: flat, or of a table whose rows are counted a sparse tensor of its shape.
    pub sum: Tensor,
    /// Of a bucket that is one table: its width, and the rows that are not zero. The same buckets are tables on all ranks.
    pub table: Option<(usize, Rows)>,
    /// Whether sums of tables are of the rows alone that gradients list, which the configuration says: the same on all ranks.
    pub by_rows: bool,
    /// Where gradients are divided: what each rank gets. The bucket has let go of the sum then.
    pub shard: Option<Arc<BucketShard>>,
    /// A mark behind what makes the sum, where a card makes it in its own time.
    pub made: Result<Event, TrainError>,
}
