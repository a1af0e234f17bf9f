//! Gradient buckets: where micro-steps' gradients add up, and when a sum is ready to be reduced.
//!
//! Micro-steps are the leaves of one binary tree. Inside a rank the tree is walked as a binary counter:
//! level `l` holds the sum of 2^l micro-steps or nothing, and a new gradient carries upwards like a
//! one added to a binary number. Across ranks [`segue_collectives::tree::tree_all_reduce`] goes on in the same
//! tree.

use std::sync::{Arc, Mutex};

use segue_world::Sender;
use tch::{Device, Kind, Tensor, no_grad};

use super::digest::{Digest, digest};
use super::reducer::Job;
use super::row_counter::RowCounter;
use super::rows::Rows;
use super::shard::{BucketShard, Shards};
use super::spoil::spoil_in_callback;
use crate::libtorch::stream::Event;
use crate::libtorch::{GradReady, Onto, is_alone, put_each, stored_values, take_grad};
use crate::{ParameterSpec, Parameters, TrainError};

/// Parameters start at multiples of this many values (64 bytes), so that a vector kernel sees the
/// same alignment, hence the same order of sums, whatever the buckets.
pub(super) const ALIGNMENT: usize = 16;

/// A bucket whose sum over this rank's micro-steps is complete.
pub struct Ready {
    /// Its number; buckets come in rising order.
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

/// Flat storage of a bucket's gradients at one level of the counter.
struct Level {
    flat: Tensor,
    /// One view a parameter, in the bucket's order.
    views: Vec<Tensor>,
}

struct Bucket {
    /// Indices of its parameters.
    members: Vec<usize>,
    /// Memory for them comes with the first gradient that is counted here. Where gradients are divided it goes with the sum.
    levels: Vec<Level>,
    /// Of a table whose rows are counted, while all gradients of the step have been lists of rows: their sums, instead of `levels`.
    counter: Option<RowCounter>,
    /// The step's sum where it lies in no level.
    total: Option<Tensor>,
    /// Gradients of this micro-step, by member, that level 0 is given all at once when the last one is there: a card takes as long to begin with one
    /// as with many.
    waiting: Vec<(usize, Tensor)>,
    /// Of a rank's only micro-step, where no other rank adds to it: the gradients themselves, by member, which are in no level then. Empty where
    /// they are counted.
    kept: Vec<Option<Tensor>>,
    counts_rows: bool,
    /// Which members this micro-step has given a gradient.
    seen: Vec<bool>,
    complete: bool,
    /// Of a bucket that is one table: its width.
    width: Option<usize>,
    /// The rows that have had a gradient in this step's micro-steps, as far as the gradients told.
    rows: Rows,
    /// Level that holds the whole sum once the last micro-step is over.
    result: usize,
    shard: Option<Arc<BucketShard>>,
}

struct State {
    leaves: Vec<Tensor>,
    buckets: Vec<Bucket>,
    /// Micro-steps of a step, and the most that there can be.
    micro_steps: usize,
    most_micro_steps: usize,
    micro_step: usize,
    /// Whether a micro-step is under way that trains these parameters.
    open: bool,
    ready: Option<Sender<Job>>,
    next_to_send: usize,
    /// Norms of what has come in of the open micro-step, by parameter, where somebody asked for them.
    norms: Option<Vec<Option<Tensor>>>,
    /// What has come in of it, likewise.
    heard: Option<Vec<Option<Digest>>>,
    /// The open micro-step is made again: its gradients are heard, and thrown away.
    rehearsal: bool,
}

/// Collects gradients as backward makes them. One micro-step is open at a time.
pub struct GradientBuckets {
    /// Bucket and position inside it, per parameter.
    places: Vec<(usize, usize)>,
    specs: Vec<ParameterSpec>,
    device: Device,
    state: Mutex<State>,
}

impl GradientBuckets {
    /// Buckets of about `bucket_bytes`, filled from the last parameter backwards: the order in which
    /// backward makes gradients. Sums `micro_steps` gradients a step; each bucket goes to `ready`, in
    /// order, as soon as its sum is complete.
    pub fn new(
        parameters: &Parameters,
        bucket_bytes: usize,
        micro_steps: usize,
        ready: Option<Sender<Job>>,
    ) -> Self {
        let specs = parameters.specs();
        let groups = group(specs, bucket_bytes);
        let mut places = vec![(0, 0); specs.len()];
        for (b, members) in groups.iter().enumerate() {
            for (position, &parameter) in members.iter().enumerate() {
                places[parameter] = (b, position);
            }
        }
        let device = parameters.options().1;
        let buckets = groups.into_iter().map(|members| Bucket::new(members, specs)).collect();
        let leaves = parameters.tensors().iter().map(Tensor::shallow_clone).collect();
        let state = State {
            leaves,
            buckets,
            micro_steps,
            most_micro_steps: micro_steps,
            micro_step: 0,
            open: false,
            ready,
            next_to_send: 0,
            norms: None,
            heard: None,
            rehearsal: false,
        };
        Self { places, specs: specs.to_vec(), device, state: Mutex::new(state) }
    }

    /// The same where sums go to those ranks alone that `shards` says.
    pub fn divided(self, shards: &Shards) -> Self {
        for bucket in &mut self.lock().buckets {
            bucket.shard = Some(Arc::new(shards.of_bucket(&bucket.members, &self.specs)));
        }
        self
    }

    /// The same where the sum of a table is of those rows alone that a step's gradients list, if every micro-step's is such a list: the sum is a sparse
    /// tensor then. Memory for the whole table is taken only where one is not.
    pub fn by_rows(self) -> Self {
        for bucket in &mut self.lock().buckets {
            bucket.counts_rows = bucket.width.is_some();
        }
        self
    }

    /// Sums `micro_steps` gradients a step from the next one on: at most as many as it was made for.
    pub fn expect(&self, micro_steps: usize) {
        self.lock().micro_steps = micro_steps;
    }

    /// Opens micro-step `index` of this rank's `0..micro_steps`.
    pub fn begin(&self, index: usize) {
        let mut state = self.lock();
        state.micro_step = index;
        state.open = true;
        if index == 0 {
            state.next_to_send = 0;
        }
        for bucket in &mut state.buckets {
            bucket.seen.fill(false);
            bucket.complete = false;
            bucket.waiting.clear();
            // Flat sums are not cleared: the first gradient of a step overwrites them. Only what is a list has
            // to be emptied.
            if index == 0 {
                bucket.rows = Rows::Some(Vec::new());
                bucket.counter = bucket.counts_rows.then(RowCounter::default);
                bucket.total = None;
                // Their memory is free for the next ones.
                bucket.kept.clear();
            }
        }
    }

    /// Opens a micro-step that adds to no sum.
    pub fn rehearse(&self) {
        let mut state = self.lock();
        (state.open, state.rehearsal) = (true, true);
    }

    /// Listens to the gradients of the micro-step that is opened next.
    pub fn listen(&self) {
        let mut state = self.lock();
        state.heard = Some(vec![None; self.places.len()]);
    }

    /// What was heard since [`Self::listen`], by parameter; nothing of those that got no gradient.
    pub fn heard(&self) -> Vec<Option<Digest>> {
        self.lock().heard.take().unwrap_or_default()
    }

    /// Measures the gradient of the micro-step that is opened next.
    pub fn measure(&self) {
        let mut state = self.lock();
        state.norms = Some(self.places.iter().map(|_| None).collect());
    }

    /// The squared norm of what was measured since [`Self::measure`], summed per parameter in f64; waits for a card.
    pub fn measured(&self) -> Result<f64, TrainError> {
        let norms: Vec<Tensor> = self.lock().norms.take().into_iter().flatten().flatten().collect();
        if norms.is_empty() {
            return Ok(0.0);
        }
        let norms = Vec::<f64>::try_from(Tensor::stack(&norms, 0).to_kind(Kind::Double))?;
        Ok(norms.into_iter().map(|norm| norm.powi(2)).sum())
    }

    /// Closes the open micro-step: parameters that got no gradient count as zero.
    pub fn finish(&self) {
        let mut state = self.lock();
        if std::mem::take(&mut state.rehearsal) {
            state.open = false;
            return;
        }
        for b in 0..state.buckets.len() {
            if !state.buckets[b].complete {
                for position in 0..state.buckets[b].members.len() {
                    if !state.buckets[b].seen[position] {
                        self.collect(&mut state, b, position, None);
                    }
                }
            }
        }
        state.buckets.iter_mut().for_each(Bucket::own);
        state.open = false;
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.lock().buckets.len()
    }

    /// Whether there is nothing to train.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sums over all micro-steps, in the parameters' order; valid until the next [`Self::begin`]. An update scales
    /// them in place, so that they are sums only before it. Not there where gradients are divided. Sparse where rows were counted.
    pub fn gradients(&self) -> Vec<Tensor> {
        let state = self.lock();
        let view = |&(b, position): &(usize, usize)| {
            let bucket = &state.buckets[b];
            let elsewhere = bucket.total.as_ref().or(bucket.kept.get(position).and_then(Option::as_ref));
            elsewhere.unwrap_or_else(|| &bucket.levels[bucket.result].views[position]).shallow_clone()
        };
        self.places.iter().map(view).collect()
    }

    /// Puts the sum over ranks of a table's bucket in the place of this rank's.
    pub fn put(&self, bucket: usize, total: Tensor) {
        self.lock().buckets[bucket].total = Some(total);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic while the lock is held ends the process; the state is never seen half done.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds one gradient to the counter; `None` counts as zero.
    fn collect(&self, state: &mut State, b: usize, position: usize, grad: Option<Tensor>) {
        let (micro_step, most) = (state.micro_step, state.most_micro_steps);
        let is_sum = state.micro_steps == 1 && state.ready.is_none();
        let bucket = &mut state.buckets[b];
        // A second call would count a gradient twice and leave the bucket complete before its time.
        if std::mem::replace(&mut bucket.seen[position], true) {
            return;
        }
        // What one micro-step gives a row is added up before it meets others, as every number of ranks does it.
        let grad = grad.map(|grad| if grad.is_sparse() { grad.coalesce() } else { grad });
        if let (Some(_), Some(grad)) = (bucket.width, &grad) {
            bucket.rows.extend(rows(grad));
        }
        if let (Some(norms), Some(grad)) = (&mut state.norms, &grad) {
            norms[bucket.members[position]] = Some(no_grad(|| stored_values(grad).norm()));
        }
        let listed = bucket.counter.is_some() && grad.as_ref().is_none_or(Tensor::is_sparse);
        match is_sum && !listed {
            true => bucket.keep(position, grad, &self.specs, self.device),
            false => {
                bucket.make_room(grad.as_ref(), &self.specs, most, self.device);
                bucket.add(micro_step, position, grad);
            }
        }
        if bucket.seen.iter().all(|&seen| seen) {
            bucket.complete = true;
            bucket.land(micro_step);
            // Levels move as a whole: a bucket that carried a part of its members would need a counter for
            // each.
            bucket.carry(micro_step);
            if micro_step + 1 == state.micro_steps {
                bucket.settle(state.micro_steps, &self.specs, self.device);
                state.send_ready();
            }
        }
    }
}

impl GradReady for GradientBuckets {
    fn ready(&self, parameter: usize) {
        let (b, position) = self.places[parameter];
        let mut state = self.lock();
        // Added to the sums of another step it would go unnoticed.
        assert!(state.open, "a gradient arrives outside its network's turn");
        // Taken, not copied: the leaf is empty again, so that libtorch does not add the next micro-step to it
        // on its own, in an order that is no tree's.
        let grad = take_grad(&state.leaves[parameter]);
        if let Some(grad) = grad.as_ref().filter(|grad| !grad.is_sparse()) {
            spoil_in_callback("micro-step", || grad.shallow_clone());
        }
        if let Some(heard) = &mut state.heard {
            heard[parameter] = grad.as_ref().map(digest);
        }
        if state.rehearsal {
            return;
        }
        self.collect(&mut state, b, position, grad);
    }
}

impl State {
    /// Hands over complete buckets in rising order, so that all ranks reduce in the same order.
    fn send_ready(&mut self) {
        let Some(sender) = &self.ready else { return };
        while let Some(bucket) = self.buckets.get_mut(self.next_to_send).filter(|b| b.complete) {
            let sum = bucket.total.as_ref().unwrap_or_else(|| &bucket.levels[bucket.result].flat);
            let ready = Ready {
                bucket: self.next_to_send,
                sum: sum.shallow_clone(),
                table: bucket.width.map(|width| (width, bucket.rows.clone())),
                by_rows: bucket.counts_rows,
                shard: bucket.shard.clone(),
                made: Event::now(sum.device()),
            };
            if bucket.shard.is_some() {
                bucket.levels.clear();
            }
            self.next_to_send += 1;
            // A closed channel means the reducer has failed; the step learns it when it waits.
            let _ = sender.send(Job::Sum(ready));
        }
    }
}

/// Storage for a bucket of these parameters: one level for each bit of the counter, as many as it takes to write the number of
/// micro-steps.
fn levels(members: &[usize], specs: &[ParameterSpec], micro_steps: usize, device: Device) -> Vec<Level> {
    let level = |_| {
        // The gaps between parameters stay zero: they are reduced along with the rest and change nothing.
        let total: usize = members.iter().map(|&i| padded(&specs[i])).sum();
        let flat = Tensor::zeros([total as i64], (Kind::Float, device));
        let mut offset = 0;
        let views = members.iter().map(|&i| {
            let view = flat.narrow(0, offset, specs[i].numel() as i64).view(specs[i].shape.as_slice());
            offset += padded(&specs[i]) as i64;
            view
        });
        Level { views: views.collect(), flat: flat.shallow_clone() }
    };
    (0..=micro_steps.ilog2()).map(level).collect()
}

impl Bucket {
    fn new(members: Vec<usize>, specs: &[ParameterSpec]) -> Self {
        let width = match members.iter().map(|&i| specs[i].shape.as_slice()).collect::<Vec<_>>()[..] {
            [[_, width]] => Some(*width as usize),
            _ => None,
        };
        Self {
            levels: Vec::new(),
            counter: None,
            total: None,
            waiting: Vec::new(),
            kept: Vec::new(),
            counts_rows: false,
            seen: vec![false; members.len()],
            members,
            complete: false,
            width,
            rows: Rows::All,
            result: 0,
            shard: None,
        }
    }

    /// Has levels ready where `grad` is counted in them. A gradient that lists no rows ends their counter: what it holds goes on in the levels.
    fn make_room(
        &mut self,
        grad: Option<&Tensor>,
        specs: &[ParameterSpec],
        micro_steps: usize,
        device: Device,
    ) {
        let counter = match grad {
            Some(grad) if !grad.is_sparse() => self.counter.take(),
            _ if self.counter.is_some() => return,
            _ => None,
        };
        if self.levels.is_empty() {
            self.levels = levels(&self.members, specs, micro_steps, device);
        }
        if let Some(counter) = counter {
            // A bucket that has a counter is one table.
            counter.write(self.levels.iter().map(|level| &level.views[0]));
        }
    }

    /// Takes the gradient of a member as its sum; `None` counts as zero.
    fn keep(&mut self, position: usize, grad: Option<Tensor>, specs: &[ParameterSpec], device: Device) {
        // What it has counted of this step, the first gradient of one table, is nothing.
        self.counter = None;
        let shape = specs[self.members[position]].shape.as_slice();
        let zeros = || Tensor::zeros(shape, (Kind::Float, device));
        let sum = match grad {
            Some(grad) if grad.is_sparse() => no_grad(|| zeros().g_add_(&grad)),
            // As a bucket's views lie: kernels see the same values in the same order.
            Some(grad) if grad.kind() == Kind::Float && grad.is_contiguous() && grad.size() == shape => {
                let strides = contiguous(shape);
                // Those of axes of one value may be any, but kernels for cards compare them.
                if grad.stride() == strides {
                    grad
                } else {
                    no_grad(|| grad.as_strided(shape, strides, None))
                }
            }
            Some(grad) => {
                let mut copy = Tensor::empty(shape, (Kind::Float, device));
                no_grad(|| copy.copy_(&grad));
                copy
            }
            None => zeros(),
        };
        self.kept.resize_with(self.members.len(), || None);
        self.kept[position] = Some(sum);
    }

    /// Copies what was kept and somebody else has too, now that backward has let go of it: an update writes to gradients. Two leaves of a sum have one
    /// gradient, as an example.
    fn own(&mut self) {
        for sum in self.kept.iter_mut().flatten().filter(|sum| !is_alone(sum)) {
            *sum = no_grad(|| sum.copy());
        }
    }

    /// Adds to the leaf of micro-step `index` the gradient of a member; `None` counts as zero. Dense ones are there after [`Self::land`].
    fn add(&mut self, index: usize, position: usize, grad: Option<Tensor>) {
        if let Some(counter) = &mut self.counter {
            return counter.push(index, grad.as_ref());
        }
        let target = &mut self.levels[0].views[position];
        no_grad(|| match (index.is_multiple_of(2), grad) {
            (true, Some(grad)) if grad.is_sparse() => _ = target.zero_().g_add_(&grad),
            (false, Some(grad)) if grad.is_sparse() => _ = target.g_add_(&grad),
            (_, Some(grad)) => self.waiting.push((position, grad)),
            (true, None) => _ = target.zero_(),
            // Adds +0 as any rank that holds zeros would: −0 becomes +0 on all of them.
            (false, None) => _ = target.g_add_scalar_(0.0),
        });
    }

    /// Adds to the leaf of micro-step `index` what waits for that.
    fn land(&mut self, index: usize) {
        let (places, grads): (Vec<usize>, Vec<Tensor>) = self.waiting.drain(..).unzip();
        let views = |place: usize| self.levels[0].views[place].shallow_clone();
        let targets: Vec<Tensor> = places.into_iter().map(views).collect();
        // Even micro-steps begin a new leaf of the tree. Odd ones are added to the leaf before them at
        // once, which is the lowest level of the tree and saves its copy.
        put_each(if index.is_multiple_of(2) { Onto::Overwrite } else { Onto::Add }, &targets, &grads)
            .expect("gradients are of their parameters' shapes, and buckets lie where they do");
    }

    /// Carries the sum in level 0 upwards after micro-step `index`. For an odd index level 0 already
    /// holds two micro-steps: the new gradient was added in place. A counter of rows has done so.
    fn carry(&mut self, index: usize) {
        if self.counter.is_some() || !self.kept.is_empty() {
            return;
        }
        // Counting from `index` to `index + 1` turns its trailing ones into zeros and sets the bit above them.
        // After micro-step 7 (111) levels 1 and 2 are full: level 0 is added to 1, the sum to 2, and that
        // comes to lie at 3. Bits below stay free.
        let top = index.trailing_ones() as usize;
        for level in 1..top {
            let (low, high) = self.levels.split_at_mut(level);
            // high[0] += low[0]; the sum then moves down to level 0, where the loop expects it.
            high[0].flat += &low[0].flat;
            std::mem::swap(&mut low[0], &mut high[0]);
        }
        self.levels.swap(0, top);
    }

    /// Adds what is left on the counter after the last micro-step, smallest first.
    fn settle(&mut self, micro_steps: usize, specs: &[ParameterSpec], device: Device) {
        if let Some(counter) = self.counter.take() {
            self.total = Some(counter.total(&specs[self.members[0]].shape, device));
            return;
        }
        if !self.kept.is_empty() {
            return;
        }
        // The bits that are set in the number of micro-steps. Smallest first is the order of the tree, in
        // which an incomplete right branch is finished before it meets the left one.
        let occupied: Vec<usize> = (0..self.levels.len()).filter(|l| micro_steps >> l & 1 == 1).collect();
        for pair in occupied.windows(2) {
            let (low, high) = self.levels.split_at_mut(pair[1]);
            high[0].flat += &low[pair[0]].flat;
        }
        self.result = occupied.last().copied().unwrap_or(0);
    }
}

/// The rows that a gradient has. A gradient of a lookup lists them; any other may have all.
fn rows(grad: &Tensor) -> Rows {
    if !grad.is_sparse() {
        return Rows::All;
    }
    match Vec::<i64>::try_from(grad.internal_indices().view([-1])) {
        Ok(numbers) => Rows::Some(numbers.into_iter().map(|number| number as u32).collect()),
        Err(_) => Rows::All,
    }
}

/// Values from one index of each axis to the next.
fn contiguous(shape: &[i64]) -> Vec<i64> {
    (1..=shape.len()).map(|after| shape[after..].iter().product()).collect()
}

/// Values that a parameter takes in a bucket.
pub(super) fn padded(spec: &ParameterSpec) -> usize {
    spec.numel().next_multiple_of(ALIGNMENT)
}

/// Parameter indices per bucket, last parameter first.
pub fn group(specs: &[ParameterSpec], bucket_bytes: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut bytes = usize::MAX;
    for i in (0..specs.len()).rev() {
        let size = padded(&specs[i]) * size_of::<f32>();
        // A parameter that is larger than a bucket has one to itself; `usize::MAX` opens the first.
        if bytes.saturating_add(size) > bucket_bytes {
            groups.push(Vec::new());
            bytes = 0;
        }
        if let Some(group) = groups.last_mut() {
            group.push(i);
        }
        bytes += size;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Init;

    fn parameters(sizes: &[i64]) -> Parameters {
        let spec = |(i, &n): (usize, &i64)| ParameterSpec {
            name: format!("p{i}"),
            shape: vec![n],
            init: Init::Zeros,
        };
        Parameters::initialise(sizes.iter().enumerate().map(spec).collect(), 1, Kind::Float)
    }

    /// Values whose sums depend on the order of addition.
    fn gradient(micro_step: usize, parameter: usize) -> f32 {
        (1.0 + micro_step as f32 * 0.377 + parameter as f32 * 1.31)
            * 10f32.powi((micro_step as i32 * 7) % 9 - 4)
    }

    fn run(parameters: &Parameters, micro_steps: usize, bucket_bytes: usize) -> Vec<f32> {
        let buckets = GradientBuckets::new(parameters, bucket_bytes, micro_steps, None);
        // Two steps: the second must not see the first's sums.
        for _ in 0..2 {
            for m in 0..micro_steps {
                buckets.begin(m);
                for p in (0..parameters.tensors().len()).rev() {
                    let n = parameters.specs()[p].numel() as i64;
                    let grad = Tensor::full([n], gradient(m, p) as f64, (Kind::Float, Device::Cpu));
                    let (b, position) = buckets.places[p];
                    // One parameter gets no gradient in one micro-step.
                    if (m, p) != (1, 0) {
                        buckets.collect(&mut buckets.lock(), b, position, Some(grad));
                    }
                }
                buckets.finish();
            }
        }
        buckets.gradients().iter().map(|g| g.double_value(&[0]) as f32).collect()
    }

    #[test]
    fn counter_adds_in_the_order_of_the_tree() {
        let parameters = parameters(&[3, 40, 5]);
        for micro_steps in 1..=9 {
            for bucket_bytes in [1, 200, 1 << 20] {
                let sums = run(&parameters, micro_steps, bucket_bytes);
                for (p, sum) in sums.iter().enumerate() {
                    let leaves = (0..micro_steps)
                        .map(|m| if (m, p) == (1, 0) { 0.0 } else { gradient(m, p) })
                        .collect();
                    let expected = segue_collectives::tree::tree_sum(leaves, |a: f32, b| a + b).unwrap();
                    assert_eq!(sum.to_bits(), expected.to_bits(), "{micro_steps} micro-steps, parameter {p}");
                }
            }
        }
    }

    /// What two leaves share, a part of something larger, what lies in another order or is of another kind, and a leaf without a gradient.
    #[test]
    fn the_gradients_of_a_step_of_one_micro_step_are_its_own() {
        let parameters = parameters(&[4, 4, 4, 4, 4, 4]);
        let leaves = parameters.tensors();
        let buckets = Arc::new(GradientBuckets::new(&parameters, 32, 1, None));
        let leaf = leaves.iter().collect::<Vec<_>>();
        let _hooks = crate::libtorch::GradHooks::install(&leaf, buckets.clone()).unwrap();
        let factor = |i: i64| Tensor::from_slice(&[1.0f32, -2.0, 3.5, 0.25]) * i;
        for step in 1..=3 {
            buckets.begin(0);
            // The first two have views of one gradient.
            let shared = leaves[0].view([2, 2]) + leaves[1].view([2, 2]);
            let parts = Tensor::cat(&[&leaves[2], &leaves[3]], 0) * Tensor::cat(&[factor(2), factor(3)], 0);
            let loss = (shared.view([4]) * factor(step)).sum(None::<Kind>)
                + parts.sum(None::<Kind>)
                + (&leaves[4] * factor(5)).sum(None::<Kind>);
            loss.backward();
            buckets.finish();
            let found = buckets.gradients();
            let expected = [factor(step), factor(step), factor(2), factor(3), factor(5), factor(0)];
            for (p, expected) in expected.iter().enumerate() {
                assert_eq!(found[p], *expected, "parameter {p} in step {step}");
                // As an update does: no other gradient may change with it.
                let _ = no_grad(|| found[p].shallow_clone().fill_(f64::from(p as u32)));
            }
        }
        assert!(
            buckets.lock().buckets.iter().all(|bucket| bucket.levels.is_empty()),
            "nothing was copied there"
        );
    }

    #[test]
    fn gradients_that_are_kept_lie_as_buckets_do() {
        let spec = ParameterSpec { name: "column".into(), shape: vec![4, 1], init: Init::Zeros };
        let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
        let leaf = &parameters.tensors()[0];
        let buckets = Arc::new(GradientBuckets::new(&parameters, 1, 1, None));
        let _hooks = crate::libtorch::GradHooks::install(&[leaf], buckets.clone()).unwrap();
        buckets.begin(0);
        (leaf.tr() * Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0])).sum(None::<Kind>).backward();
        buckets.finish();
        let found = buckets.gradients().swap_remove(0);
        assert_eq!((found.size(), found.stride()), (vec![4, 1], vec![1, 1]));
        assert_eq!(Vec::<f32>::try_from(found.view([-1])).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn buckets_leave_in_rising_order_after_the_last_micro_step() {
        let parameters = parameters(&[64, 64, 64]);
        let (sender, receiver) = segue_world::channel();
        let buckets = GradientBuckets::new(&parameters, 256, 2, Some(sender));
        for m in 0..2 {
            buckets.begin(m);
            // Gradients arrive in forward order: bucket 0 (the last parameter) completes last.
            for p in 0..3 {
                let (b, position) = buckets.places[p];
                let grad = Tensor::ones([64], (Kind::Float, Device::Cpu));
                buckets.collect(&mut buckets.lock(), b, position, Some(grad));
            }
            let sent: Vec<usize> =
                std::iter::from_fn(|| receiver.try_recv().ok()).map(|job| summed(job).bucket).collect();
            assert_eq!(sent, if m == 0 { vec![] } else { vec![0, 1, 2] });
        }
    }

    fn summed(job: Job) -> Ready {
        match job {
            Job::Sum(ready) => ready,
            Job::Gather(..) => panic!("buckets gather no weights"),
        }
    }

    /// The gradient that looking `ids` up leaves, each row times a factor of its own.
    fn of_lookup(ids: &[i64], sparse: bool) -> Tensor {
        let table = Tensor::zeros([6, 2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let found = Tensor::embedding(&table, &Tensor::from_slice(ids), -1, false, sparse);
        // Sums of these depend on the order.
        let factors = [1e8f32, 1.0, -1e8, 3e7];
        (found * Tensor::from_slice(&factors[..ids.len()]).unsqueeze(1)).sum(None::<Kind>).backward();
        assert_eq!(table.grad().is_sparse(), sparse);
        table.grad()
    }

    /// Micro-steps without a gradient, and at one place a dense one.
    #[test]
    fn rows_are_counted_to_the_bits_of_whole_tables() {
        let spec = ParameterSpec { name: "table".into(), shape: vec![6, 2], init: Init::Zeros };
        let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
        let lookups: [&[i64]; 9] =
            [&[4, 1, 4], &[0, 1, 4, 4], &[4], &[], &[2, 2], &[5, 1, 2], &[0], &[4, 4, 4, 0], &[1, 3]];
        for (micro_steps, dense_at) in (1..=9).flat_map(|n| [(n, None), (n, Some(0)), (n, Some(n / 2))]) {
            let by_rows = GradientBuckets::new(&parameters, 1, micro_steps, None).by_rows();
            let whole = GradientBuckets::new(&parameters, 1, micro_steps, None);
            // The second step has all rows alone.
            for dense_at in [dense_at, None] {
                for (m, ids) in lookups.into_iter().take(micro_steps).enumerate() {
                    for buckets in [&by_rows, &whole] {
                        buckets.begin(m);
                        // A gradient of −0 is +0 in a sum.
                        let grad = of_lookup(if ids.is_empty() { &[3] } else { ids }, dense_at != Some(m));
                        let grad = if ids.is_empty() { grad * -0.0 } else { grad };
                        if m != 6 {
                            buckets.collect(&mut buckets.lock(), 0, 0, Some(grad));
                        }
                        buckets.finish();
                    }
                }
                let found = by_rows.gradients().swap_remove(0);
                assert_eq!(found.is_sparse(), dense_at.is_none() || dense_at == Some(6));
                let found = if found.is_sparse() { found.to_dense(None, false) } else { found };
                let bits = |tensor: &Tensor| tensor.view_dtype(Kind::Int);
                let (found, whole) = (bits(&found), bits(&whole.gradients()[0]));
                assert_eq!(found, whole, "{micro_steps} micro-steps, dense at {dense_at:?}");
            }
        }
    }

    #[test]
    fn gradients_of_lookups_add_up_alike_and_tell_their_rows() {
        let spec = ParameterSpec { name: "table".into(), shape: vec![6, 2], init: Init::Zeros };
        let parameters = Parameters::initialise(vec![spec], 1, Kind::Float);
        let steps: [[&[i64]; 3]; 2] = [[&[4, 1, 4], &[0, 1, 4, 4], &[4]], [&[2, 2], &[2, 2, 2, 2], &[5]]];
        for dense_at in [None, Some(1)] {
            let (sender, receiver) = segue_world::channel();
            let sparse = GradientBuckets::new(&parameters, 1, 3, Some(sender));
            let dense = GradientBuckets::new(&parameters, 1, 3, None);
            for lookups in steps {
                for (m, ids) in lookups.into_iter().enumerate() {
                    for (buckets, is_sparse) in [(&sparse, dense_at != Some(m)), (&dense, false)] {
                        buckets.begin(m);
                        let grad = of_lookup(ids, is_sparse);
                        buckets.collect(&mut buckets.lock(), 0, 0, Some(grad));
                        buckets.finish();
                    }
                }
                assert_eq!(sparse.gradients()[0], dense.gradients()[0]);
                // In rising order within a lookup, each once.
                let rising =
                    |ids: &[i64]| ids.iter().map(|id| *id as u32).collect::<std::collections::BTreeSet<_>>();
                let numbers = lookups.into_iter().flat_map(rising).collect();
                let expected = if dense_at.is_some() { Rows::All } else { Rows::Some(numbers) };
                assert_eq!(summed(receiver.recv().unwrap()).table, Some((2, expected)));
            }
        }
    }
}
