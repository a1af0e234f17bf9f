//! PixelCNN++ (Salimans et al. 2017, §2): two streams of features, of the rows above a pixel and of those and what is left of it, in gated residual blocks, down to coarser
//! resolutions and up again. What a pixel's outputs depend on comes before it, row by row.

use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, ParameterSpec, Parameters};
use segue_layers::weight_norm::{MapForm, WeightNormed};
use tch::Tensor;

/// Sizes of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes {
    /// Channels of an image.
    pub channels: usize,
    /// Features of each stream.
    pub filters: usize,
    /// Blocks of a resolution.
    pub blocks: usize,
    /// Resolutions, each half as fine as the one before.
    pub resolutions: usize,
    /// Outputs of a pixel.
    pub outputs: usize,
    /// Rate of dropout within blocks.
    pub dropout: f64,
}

/// Where the places that a convolution reads lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Causal {
    /// Rows down to its own: 2 × 3 places.
    Down,
    /// Those left of it too, not right: 2 × 2 places.
    DownRight,
}

impl Causal {
    /// Rows and columns of a kernel.
    fn kernel(self) -> [i64; 2] {
        match self {
            Self::Down => [2, 3],
            Self::DownRight => [2, 2],
        }
    }

    /// Zeros left and right of, and above, the input of a kernel with these rows and columns.
    fn zeros(self, [rows, columns]: [i64; 2]) -> [i64; 4] {
        match self {
            Self::Down => [(columns - 1) / 2, (columns - 1) / 2, rows - 1, 0],
            Self::DownRight => [columns - 1, 0, rows - 1, 0],
        }
    }
}

/// A convolution that sees no later pixel.
struct CausalMap {
    map: WeightNormed,
    zeros: [i64; 4],
}

impl CausalMap {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.map.forward(&x.constant_pad_nd(self.zeros))
    }
}

/// Its transposed one, to twice the rows and columns.
struct CausalRise {
    map: WeightNormed,
    causal: Causal,
}

impl CausalRise {
    fn forward(&self, x: &Tensor) -> Tensor {
        let (rows, columns) = (2 * x.size()[2], 2 * x.size()[3]);
        let left = match self.causal {
            Causal::Down => 1,
            Causal::DownRight => 0,
        };
        self.map.forward(x).narrow(2, 0, rows).narrow(3, left, columns)
    }
}

/// x and −x, each with negative values bent: `[batch, 2 features, ..]`.
fn bent(x: &Tensor) -> Tensor {
    Tensor::cat(&[x, &x.neg()], 1).elu()
}

/// `x`, `[batch, features, height, width]`, one row (axis 2) or column (axis 3) later: the first is zeros.
fn later(x: &Tensor, axis: i64) -> Tensor {
    let zeros = if axis == 2 { [0, 0, 1, 0] } else { [1, 0, 0, 0] };
    x.constant_pad_nd(zeros).narrow(axis, 0, x.size()[axis as usize])
}

/// A gated residual block: x + a σ(b), a and b convolutions of what is bent twice.
struct Block {
    first: CausalMap,
    /// Of a second input, at the same places.
    beside: Option<WeightNormed>,
    second: CausalMap,
    rate: f64,
}

impl Block {
    /// `x`: `[batch, features, height, width]`; `beside`: of as many places. Returns as `x`.
    fn forward(&self, x: &Tensor, beside: Option<&Tensor>, noise: Option<&Noise>) -> Tensor {
        let mut states = self.first.forward(&bent(x));
        if let (Some(map), Some(beside)) = (&self.beside, beside) {
            states += map.forward(&bent(beside));
        }
        let states = dropout(bent(&states), self.rate, noise);
        let both = self.second.forward(&states).chunk(2, 1);
        x + &both[0] * both[1].sigmoid()
    }
}

/// Scale that what a block adds begins with.
const SMALL_START: f64 = 0.1;

/// Builds layers of the parameters by their names, or lists these.
struct Names<'a> {
    parameters: Option<&'a Parameters>,
    specs: Vec<ParameterSpec>,
}

/// A layer, where there are parameters.
type Built<T> = Option<T>;

impl Names<'_> {
    /// A weight-normed map with a trained scale, which begins at `start`.
    fn scaled(&mut self, name: &str, form: MapForm, shape: &[i64], start: f64) -> Built<WeightNormed> {
        let own = WeightNormed::specs(name, form, shape);
        let outputs = own[1].shape.clone();
        self.specs.extend(own);
        let scale = format!("{name}.scale");
        self.specs.push(ParameterSpec {
            name: scale.clone(),
            shape: outputs,
            init: Init::Normal { mean: start, std: 0.0 },
        });
        self.parameters.map(|parameters| WeightNormed::new(parameters, name, form, parameters.get(&scale)))
    }

    fn map(&mut self, name: &str, form: MapForm, shape: &[i64]) -> Built<WeightNormed> {
        self.scaled(name, form, shape, 1.0)
    }

    fn causal(
        &mut self,
        name: &str,
        causal: Causal,
        kernel: [i64; 2],
        stride: i64,
        from: i64,
        to: i64,
    ) -> Built<CausalMap> {
        let form = MapForm::Convolution { stride, padding: 0 };
        let map = self.map(name, form, &[to, from, kernel[0], kernel[1]])?;
        Some(CausalMap { map, zeros: causal.zeros(kernel) })
    }

    /// What a block adds, which begins small.
    fn ending(&mut self, name: &str, causal: Causal, width: i64) -> Built<CausalMap> {
        let (kernel, form) = (causal.kernel(), MapForm::Convolution { stride: 1, padding: 0 });
        let map = self.scaled(name, form, &[2 * width, 2 * width, kernel[0], kernel[1]], SMALL_START)?;
        Some(CausalMap { map, zeros: causal.zeros(kernel) })
    }

    fn rise(&mut self, name: &str, causal: Causal, width: i64) -> Built<CausalRise> {
        let form = MapForm::Transposed { stride: 2, padding: 0, output_padding: 1 };
        let [rows, columns] = causal.kernel();
        let map = self.map(name, form, &[width, width, rows, columns])?;
        Some(CausalRise { map, causal })
    }

    /// A block of `width` features; `beside`: features of a second input, 0 for none.
    fn block(&mut self, name: &str, causal: Causal, width: i64, beside: i64, rate: f64) -> Built<Block> {
        let kernel = causal.kernel();
        let first = self.causal(&format!("{name}.first"), causal, kernel, 1, 2 * width, width);
        let one = MapForm::Convolution { stride: 1, padding: 0 };
        let map = (beside > 0).then(|| self.map(&format!("{name}.beside"), one, &[width, 2 * beside, 1, 1]));
        let second = self.ending(&format!("{name}.second"), causal, width);
        Some(Block { first: first?, beside: map.flatten(), second: second?, rate })
    }
}

/// Both streams.
type Streams<T> = [T; 2];
/// Of each stream how it sees.
const STREAMS: Streams<(&str, Causal)> = [("rows", Causal::Down), ("places", Causal::DownRight)];

/// The network over its parameters.
pub struct PixelCnn {
    start: Streams<CausalMap>,
    start_left: CausalMap,
    /// By resolution, the blocks of both streams on the way down.
    down: Vec<Vec<Streams<Block>>>,
    /// To each coarser resolution.
    fall: Vec<Streams<CausalMap>>,
    /// By resolution from the coarsest on, on the way up.
    up: Vec<Vec<Streams<Block>>>,
    /// To each finer resolution.
    rise: Vec<Streams<CausalRise>>,
    output: WeightNormed,
}

impl PixelCnn {
    /// The parameters of a network.
    pub fn specs(sizes: &Sizes) -> Vec<ParameterSpec> {
        let mut names = Names { parameters: None, specs: Vec::new() };
        let _ = Self::build(sizes, &mut names);
        names.specs
    }

    /// Over `parameters`, which are those of [`Self::specs`].
    pub fn new(sizes: &Sizes, parameters: &Parameters) -> Self {
        match Self::build(sizes, &mut Names { parameters: Some(parameters), specs: Vec::new() }) {
            Some(network) => network,
            None => unreachable!("where there are parameters, there are all layers"),
        }
    }

    /// Multiplications and additions of an image of that many rows and columns with weights, and the values that maps give.
    pub fn products(sizes: &Sizes, [height, width]: [usize; 2]) -> (f64, f64) {
        let (mut products, mut given) = (0.0, 0.0);
        for spec in Self::specs(sizes).iter().filter(|spec| spec.name.ends_with(".weight")) {
            // Of `down.RESOLUTION`, `fall.RESOLUTION` and `rise.RESOLUTION`; those on the way up begin at the coarsest.
            let mut parts = spec.name.split('.');
            let (part, number) = (parts.next(), parts.next().and_then(|number| number.parse::<u32>().ok()));
            let coarsest = sizes.resolutions as u32 - 1;
            let level = match (part, number) {
                (Some("down" | "fall"), Some(number)) => number,
                // As many places as it reads.
                (Some("rise"), Some(number)) => coarsest + 1 - number,
                (Some("up"), Some(number)) => coarsest - number,
                _ => 0,
            };
            let places = (height * width) as f64 / f64::from(4u32.pow(level));
            products += spec.shape.iter().product::<i64>() as f64 * places;
            // A rise gives four values for each that it reads.
            given += spec.shape[0] as f64 * places * if part == Some("rise") { 4.0 } else { 1.0 };
        }
        (products, given)
    }

    fn build(sizes: &Sizes, names: &mut Names) -> Built<Self> {
        let (width, rate) = (sizes.filters as i64, sizes.dropout);
        // An image has one channel more, of ones, so that zeros around it can be told from its own.
        let image = sizes.channels as i64 + 1;
        let start = [
            names.causal("start.rows", Causal::Down, [2, 3], 1, image, width),
            names.causal("start.above", Causal::Down, [1, 3], 1, image, width),
        ];
        let start_left = names.causal("start.left", Causal::DownRight, [2, 1], 1, image, width);
        let mut streams = |part: &str, beside: Streams<i64>| -> Built<Streams<Block>> {
            let both = [0, 1].map(|i| {
                let (name, causal) = STREAMS[i];
                names.block(&format!("{part}.{name}"), causal, width, beside[i], rate)
            });
            let [rows, places] = both;
            Some([rows?, places?])
        };
        let mut down = Vec::new();
        let mut up = Vec::new();
        for resolution in 0..sizes.resolutions {
            let own =
                (0..sizes.blocks).map(|block| streams(&format!("down.{resolution}.{block}"), [0, width]));
            down.push(own.collect::<Vec<_>>());
        }
        for resolution in 0..sizes.resolutions {
            // As on the way down, and one more to meet what has become coarser.
            let count = sizes.blocks + usize::from(resolution > 0);
            let own =
                (0..count).map(|block| streams(&format!("up.{resolution}.{block}"), [width, 2 * width]));
            up.push(own.collect::<Vec<_>>());
        }
        let (mut fall, mut rise) = (Vec::new(), Vec::new());
        for resolution in 1..sizes.resolutions {
            fall.push(STREAMS.map(|(name, causal)| {
                names.causal(&format!("fall.{resolution}.{name}"), causal, causal.kernel(), 2, width, width)
            }));
            rise.push(
                STREAMS.map(|(name, causal)| names.rise(&format!("rise.{resolution}.{name}"), causal, width)),
            );
        }
        let one = MapForm::Convolution { stride: 1, padding: 0 };
        let output = names.map("output", one, &[sizes.outputs as i64, width, 1, 1]);
        let both = |[a, b]: Streams<Built<CausalMap>>| Some([a?, b?]);
        let all = |blocks: Vec<Vec<Built<Streams<Block>>>>| -> Built<Vec<Vec<Streams<Block>>>> {
            blocks.into_iter().map(|of| of.into_iter().collect()).collect()
        };
        Some(Self {
            start: both(start)?,
            start_left: start_left?,
            down: all(down)?,
            fall: fall.into_iter().map(both).collect::<Built<_>>()?,
            up: all(up)?,
            rise: rise.into_iter().map(|[a, b]| Some([a?, b?])).collect::<Built<_>>()?,
            output: output?,
        })
    }

    /// What the distribution of each pixel is made of: `[batch, outputs, height, width]`. `x`: `[batch, channels, height, width]` in [−1, 1]; both sides have to be multiples of
    /// 2 for each coarser resolution.
    pub fn forward(&self, x: &Tensor, noise: Option<&Noise>) -> Tensor {
        let size = x.size();
        let ones = Tensor::ones([size[0], 1, size[2], size[3]], (x.kind(), x.device()));
        let x = Tensor::cat(&[x, &ones], 1);
        let rows = later(&self.start[0].forward(&x), 2);
        let places = later(&self.start[1].forward(&x), 2) + later(&self.start_left.forward(&x), 3);
        // What the way up meets again.
        let mut met = vec![[rows, places]];
        for (resolution, blocks) in self.down.iter().enumerate() {
            for block in blocks {
                let [rows, places] =
                    met.last().map(both_of).unwrap_or_else(|| unreachable!("the start is there"));
                let rows = block[0].forward(&rows, None, noise);
                let places = block[1].forward(&places, Some(&rows), noise);
                met.push([rows, places]);
            }
            if let Some(fall) = self.fall.get(resolution) {
                let [rows, places] =
                    met.last().map(both_of).unwrap_or_else(|| unreachable!("the start is there"));
                met.push([fall[0].forward(&rows), fall[1].forward(&places)]);
            }
        }
        let Some([mut rows, mut places]) = met.pop() else { unreachable!("the start is there") };
        for (resolution, blocks) in self.up.iter().enumerate() {
            for block in blocks {
                let Some([other_rows, other_places]) = met.pop() else { break };
                rows = block[0].forward(&rows, Some(&other_rows), noise);
                let beside = Tensor::cat(&[&rows, &other_places], 1);
                places = block[1].forward(&places, Some(&beside), noise);
            }
            if let Some(rise) = self.rise.get(resolution) {
                (rows, places) = (rise[0].forward(&rows), rise[1].forward(&places));
            }
        }
        self.output.forward(&places.elu())
    }
}

/// Both streams once more.
fn both_of([rows, places]: &Streams<Tensor>) -> Streams<Tensor> {
    [rows.shallow_clone(), places.shallow_clone()]
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    fn sizes(channels: usize, resolutions: usize) -> Sizes {
        Sizes { channels, filters: 4, blocks: 2, resolutions, outputs: 6, dropout: 0.0 }
    }

    fn network(sizes: &Sizes) -> PixelCnn {
        let parameters = Parameters::initialise(PixelCnn::specs(sizes), 5, Kind::Double);
        PixelCnn::new(sizes, &parameters)
    }

    /// Row B10: outputs of a pixel have no gradient of it, nor of any after it, and some of those before.
    #[test]
    fn outputs_depend_on_what_comes_before_alone() {
        for (channels, resolutions) in [(1, 1), (1, 2), (3, 3)] {
            let network = network(&sizes(channels, resolutions));
            let shape = [1, channels as i64, 8, 8];
            let count: i64 = shape.iter().product();
            let values = (Tensor::arange(count, (Kind::Double, Device::Cpu)).square() * 0.3).sin();
            for (row, column) in [(0, 0), (0, 5), (3, 0), (4, 4), (7, 7), (5, 7)] {
                let x = values.view(shape).detach().copy().set_requires_grad(true);
                let outputs = network.forward(&x, None);
                assert_eq!(outputs.size(), [1, 6, 8, 8]);
                outputs.select(2, row).select(2, column).sum(None::<Kind>).backward();
                let reach = x.grad().abs().sum_dim_intlist([0, 1].as_slice(), false, None::<Kind>).view([-1]);
                let place = row * 8 + column;
                let sum = |first: i64, count: i64| {
                    reach.narrow(0, first, count).sum(None::<Kind>).double_value(&[])
                };
                assert_eq!(sum(place, 64 - place), 0.0, "{row}, {column} of {resolutions} resolutions");
                assert!(place == 0 || sum(0, place) > 0.0, "{row}, {column} of {resolutions} resolutions");
                if column > 0 {
                    assert!(sum(place - 1, 1) > 0.0, "the pixel left of {row}, {column}");
                }
            }
        }
    }

    #[test]
    fn specs_are_those_of_the_layers() {
        let sizes = sizes(1, 2);
        let specs = PixelCnn::specs(&sizes);
        let names: std::collections::HashSet<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(names.len(), specs.len(), "names are different");
        let blocks = names.iter().filter(|name| name.ends_with(".first.weight")).count();
        // Two resolutions of two blocks down, and of two and three up, of two streams each.
        assert_eq!(blocks, 2 * (2 + 2 + 2 + 3));
    }
}
