//! Layers that keep nothing for backward but their inputs (Chen et al. 2016, "Training deep nets with sublinear memory cost"): backward makes
//! them again, one at a time, and differentiates that. The last one is not made again: backward begins with it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use segue_kernels::libtorch::{Autocast, Called, Since, functions, gradients, identity, leaves};
use segue_kernels::noise::Noise;
use tch::Tensor;

const LAYER: Called = Called {
    name: c"a recomputed layer",
    advice: c"its backward makes the layer anew; without train.recompute, layers with Kernels::Plain can be differentiated any number of times",
};

/// What a layer and those that make it again read in common. It is not changed, and backward runs while the thread that
/// made the forward pass waits for it.
pub struct Kept<T>(Arc<T>);

// SAFETY: handed to the thread of a backward, which is over before anybody else goes on; until then tensors are read alone, which
// libtorch allows any number of threads.
unsafe impl<T: Send> Send for Kept<T> {}

impl<T> Kept<T> {
    /// Shares `value`.
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// What goes into a layer and comes out of it.
pub trait States: Sized {
    /// Its tensors, in an order of its own; as many after a layer as before it.
    fn into_tensors(self) -> Vec<Tensor>;

    /// From the same list.
    fn of_tensors(tensors: Vec<Tensor>) -> Self;
}

impl States for Tensor {
    fn into_tensors(self) -> Vec<Tensor> {
        vec![self]
    }

    fn of_tensors(mut tensors: Vec<Tensor>) -> Self {
        tensors.swap_remove(0)
    }
}

/// The layers of one forward pass, each of which keeps its activations or is made again, as `train.recompute` says. Bits are the same
/// either way: those of the values, and those of the gradients. Where one backward goes through several passes, a parameter's gradients
/// are added up pass by pass, which may round otherwise.
pub struct Recompute {
    on: bool,
    /// Layers that have not been called.
    left: Cell<usize>,
    /// By identity of each parameter that a layer has read: itself, as a value of the last of these layers. Gradients of a parameter
    /// that serves several layers go from one to the next, and each adds its own, in the order of a graph that was kept.
    handed_on: RefCell<HashMap<usize, Tensor>>,
}

impl Recompute {
    /// For one pass through this many layers.
    pub fn new(on: bool, layers: usize) -> Self {
        Self { on, left: Cell::new(layers), handed_on: RefCell::default() }
    }

    /// What `forward` makes of `states`, a layer that reads besides them leaves, and tensors that have no history. It draws from `noise`,
    /// the same each time.
    ///
    /// # Panics
    ///
    /// Where `forward` reads a tensor with a history that is not one of the `states`.
    pub fn layer<S: States>(
        &self,
        states: S,
        noise: Option<&Noise>,
        forward: impl Fn(S, Option<&Noise>) -> S + Send + 'static,
    ) -> S {
        if !self.on {
            return forward(states, noise);
        }
        let (noise_before, autocast, since) = (noise.cloned(), Autocast::current(), Since::now());
        let mut read = states.into_tensors();
        let own = cut_off(&read);
        let forward = move |own: &[Tensor], noise: Option<&Noise>| {
            let own = own.iter().map(Tensor::shallow_clone).collect();
            autocast.during(|| forward(S::of_tensors(own), noise)).into_tensors()
        };
        let ys = forward(&own, noise);
        let parameters = parameters(&ys, &own, since);
        let (given, given_parameters) = (detached(&ys), detached(&parameters));
        read.extend(self.hand_on(&parameters, &given_parameters));
        // What backward would need goes with the values' own graph, but for the last layer: backward begins with it.
        let kept = self.is_last().then_some(ys);
        let all: Vec<&Tensor> = given.iter().chain(&given_parameters).collect();
        functions(LAYER, &read.iter().collect::<Vec<_>>(), &all, move |of_ys| {
            let again = || tch::with_grad(|| forward(&own, noise_before.as_ref()));
            differentiate(&kept.unwrap_or_else(again), &parameters, &own, of_ys)
        });
        S::of_tensors(given)
    }

    /// Counts a layer.
    fn is_last(&self) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        self.left.get() == 0
    }

    /// Notes the layer that reads `parameters` as the last one, which has them as the values `ys`. Gives what it has them from:
    /// the layer before it, or themselves.
    fn hand_on(&self, parameters: &[Tensor], ys: &[Tensor]) -> Vec<Tensor> {
        let mut handed_on = self.handed_on.borrow_mut();
        let pairs = parameters.iter().zip(ys);
        let before = pairs.map(|(parameter, y)| {
            let before = handed_on.insert(identity(parameter), y.shallow_clone());
            before.unwrap_or_else(|| parameter.shallow_clone())
        });
        before.collect()
    }
}

/// The leaves among what `ys` were computed from since, without `own`.
fn parameters(ys: &[Tensor], own: &[Tensor], since: Since) -> Vec<Tensor> {
    let own: Vec<usize> = own.iter().map(identity).collect();
    match leaves(ys, since) {
        Ok(leaves) => leaves.into_iter().filter(|leaf| !own.contains(&identity(leaf))).collect(),
        Err(error) => panic!("{}: {error}", LAYER.name.to_string_lossy()),
    }
}

/// The same values as leaves, which want gradients where `tensors` do.
fn cut_off(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(|tensor| tensor.detach().set_requires_grad(tensor.requires_grad())).collect()
}

fn detached(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::detach).collect()
}

/// Gradients of `own` and then of the `parameters`, from those of `ys` and then of the parameters in the layers after this one.
fn differentiate(
    ys: &[Tensor],
    parameters: &[Tensor],
    own: &[Tensor],
    of_ys: Vec<Option<Tensor>>,
) -> Vec<Option<Tensor>> {
    let values = ys.iter().chain(parameters).zip(&of_ys);
    let of_values: Vec<_> = values.filter_map(|(y, of_y)| Some((y, of_y.as_ref()?))).collect();
    let read = || own.iter().chain(parameters);
    let wanted: Vec<&Tensor> = read().filter(|tensor| tensor.requires_grad()).collect();
    let mut found = match gradients(&of_values, &wanted) {
        Ok(found) => found.into_iter(),
        Err(error) => panic!("{error}"),
    };
    read().map(|tensor| if tensor.requires_grad() { found.next().flatten() } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use segue_configs::Precision;
    use segue_kernels::libtorch::{assert_differentiable_once, function};
    use segue_kernels::noise::dropout;
    use tch::{Device, Kind};

    use super::*;

    fn wave(shape: &[i64], speed: f64) -> Tensor {
        let count = shape.iter().product::<i64>();
        (Tensor::arange(count, (Kind::Float, Device::Cpu)) * speed).sin().view(shape)
    }

    fn leaf(shape: &[i64], speed: f64) -> Tensor {
        wave(shape, speed).set_requires_grad(true)
    }

    /// Three layers that read `shared` twice each: states, and gradients of x, `shared` and each layer's own.
    fn three_layers(on: bool) -> Vec<Tensor> {
        let (x, shared) = (leaf(&[5, 4], 0.7), leaf(&[4, 4], 1.3));
        let own: Vec<Tensor> = (0..3).map(|i| leaf(&[4], 0.3 + i as f64)).collect();
        let (pass, noise) = (Recompute::new(on, 3), Noise::new(3));
        let mut states = x.shallow_clone() * 1.0;
        for own in &own {
            let (own, shared) = (own.shallow_clone(), shared.shallow_clone());
            states = pass.layer(states, Some(&noise), move |states, noise| {
                let inner = dropout(states.matmul(&shared) + &own, 0.3, noise).tanh();
                dropout(inner.matmul(&shared), 0.2, noise) + states
            });
        }
        // What comes after the layers draws on from where they have stopped.
        let states = dropout(states, 0.5, Some(&noise));
        states.square().sum(None::<Kind>).backward();
        let leaves = [x, shared].into_iter().chain(own).map(|leaf| leaf.grad());
        [states.detach()].into_iter().chain(leaves).collect()
    }

    #[test]
    fn values_and_gradients_have_the_bits_of_layers_that_keep_all() {
        let (again, kept) = (three_layers(true), three_layers(false));
        assert!(again.len() == 6 && again.iter().all(|tensor| tensor.abs().max().double_value(&[]) > 0.01));
        assert_eq!(again, kept);
    }

    #[test]
    fn a_layer_keeps_nothing_of_its_inside() {
        let counted = Arc::new(());
        let x = leaf(&[3], 0.7);
        let inside = counted.clone();
        let y = Recompute::new(true, 2).layer(x.shallow_clone(), None, move |x, _| {
            let kept = inside.clone();
            function(c"a copy", &[&x], x.detach().copy(), move |grad| {
                let _kept = &kept;
                vec![Some(grad)]
            })
        });
        // Here, and in the layer that is to be made again.
        assert_eq!(Arc::strong_count(&counted), 2);
        y.sum(None::<Kind>).backward();
        assert_eq!(Arc::strong_count(&counted), 1);
        assert_eq!(x.grad(), Tensor::ones([3], (Kind::Float, Device::Cpu)));
    }

    #[test]
    fn all_layers_but_the_last_are_made_twice() {
        let made = Arc::new(Mutex::new(Vec::new()));
        let pass = Recompute::new(true, 3);
        let mut x = leaf(&[3], 0.7);
        for layer in 0..3 {
            let made = made.clone();
            x = pass.layer(x, None, move |x: Tensor, _| {
                made.lock().unwrap().push(layer);
                x.sin()
            });
        }
        x.sum(None::<Kind>).backward();
        assert_eq!(*made.lock().unwrap(), [0, 1, 2, 1, 0]);
    }

    #[test]
    fn without_gradients_a_layer_is_made_once() {
        let made = Arc::new(Mutex::new(0));
        let count = made.clone();
        let x = leaf(&[3], 0.7);
        let y = tch::no_grad(|| {
            Recompute::new(true, 2).layer(x, None, move |x: Tensor, _| {
                *count.lock().unwrap() += 1;
                x * 2.0
            })
        });
        assert!(!y.requires_grad());
        assert_eq!((*made.lock().unwrap(), Arc::strong_count(&made)), (1, 1));
    }

    #[test]
    fn a_gradient_of_a_gradient_is_refused() {
        assert_differentiable_once("a recomputed layer", || {
            let (x, weight) = (leaf(&[3, 4], 0.7), leaf(&[2, 4], 1.3));
            let own = weight.shallow_clone();
            let y = Recompute::new(true, 2)
                .layer(x.shallow_clone(), None, move |x: Tensor, _| x.linear(&own, None::<&Tensor>));
            (y, vec![x, weight])
        });
    }

    #[test]
    #[should_panic(expected = "that is not among its inputs")]
    fn a_history_that_a_layer_was_not_given_is_an_error() {
        let x = leaf(&[3], 0.7);
        let other = &x * 2.0;
        let _ = Recompute::new(true, 2).layer(x, None, move |x: Tensor, _| x * &other);
    }

    #[test]
    fn casts_of_backward_are_those_of_forward() {
        let gradient = |on: bool| {
            let (x, weight) = (leaf(&[3, 4], 0.7), leaf(&[4, 4], 1.3));
            let kinds = Arc::new(Mutex::new(Vec::new()));
            let (own, seen) = (weight.shallow_clone(), kinds.clone());
            let y = Autocast::to(Precision::Bf16, Device::Cpu).unwrap().during(|| {
                Recompute::new(on, 2).layer(x.shallow_clone(), None, move |x: Tensor, _| {
                    let y = x.linear(&own, None::<&Tensor>).linear(&own, None::<&Tensor>);
                    seen.lock().unwrap().push(y.kind());
                    y.to_kind(Kind::Float)
                })
            });
            y.sum(None::<Kind>).backward();
            assert_eq!(x.linear(&weight, None::<&Tensor>).kind(), Kind::Float);
            let kinds = kinds.lock().unwrap().clone();
            (kinds, x.grad(), weight.grad())
        };
        let (kept, again) = (gradient(false), gradient(true));
        assert_eq!((kept.0, again.0), (vec![Kind::BFloat16], vec![Kind::BFloat16; 2]));
        assert_eq!((kept.1, kept.2), (again.1, again.2));
    }
}
