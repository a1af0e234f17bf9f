//! Random numbers as `numpy.random.default_rng` draws them, which sacrebleu resamples sentences by: PCG XSL RR 128/64 (O'Neill 2014), seeded by NumPy's
//! `SeedSequence`.

/// Multiplier of the generator's state.
const MULTIPLIER: u128 = 0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645;
/// Words of entropy that a seed is mixed into.
const POOL: usize = 4;
/// Constants of `SeedSequence`: how the pool is hashed, and its words mixed with each other.
const INIT_POOL: u32 = 0x43B0_D7E5;
const MULTIPLY_POOL: u32 = 0x931E_8875;
const MIX_LEFT: u32 = 0xCA01_F9DD;
const MIX_RIGHT: u32 = 0x4973_F715;
/// And how the state is hashed out of it.
const INIT_STATE: u32 = 0x8B51_F9DD;
const MULTIPLY_STATE: u32 = 0x58F3_8DED;
const SHIFT: u32 = 16;

/// A generator.
pub struct Pcg64 {
    state: u128,
    increment: u128,
    /// The upper half of the last number, which the next half is.
    half: Option<u32>,
}

impl Pcg64 {
    /// `default_rng(seed)`.
    pub fn seeded(seed: u32) -> Self {
        let [a, b, c, d] = state_words(seed);
        let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
        let mut generator = Self { state: 0, increment: wide(c, d) << 1 | 1, half: None };
        generator.step();
        generator.state = generator.state.wrapping_add(wide(a, b));
        generator.step();
        generator
    }

    fn step(&mut self) {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(self.increment);
    }

    fn next_u64(&mut self) -> u64 {
        self.step();
        let folded = (self.state >> 64) as u64 ^ self.state as u64;
        folded.rotate_right((self.state >> 122) as u32)
    }

    fn next_u32(&mut self) -> u32 {
        if let Some(half) = self.half.take() {
            return half;
        }
        let whole = self.next_u64();
        self.half = Some((whole >> 32) as u32);
        whole as u32
    }

    /// A number below `bound`, which is above 0: `integers(0, bound)` (Lemire 2019).
    pub fn below(&mut self, bound: u32) -> u32 {
        if bound == 1 {
            return 0;
        }
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u64::from(self.next_u32()) * u64::from(bound);
            if product as u32 >= threshold {
                return (product >> 32) as u32;
            }
        }
    }
}

/// `SeedSequence(seed).generate_state(4, uint64)`.
fn state_words(seed: u32) -> [u64; 4] {
    let mut hash = INIT_POOL;
    let mut hashed = |value: u32| {
        let value = value ^ hash;
        hash = hash.wrapping_mul(MULTIPLY_POOL);
        let value = value.wrapping_mul(hash);
        value ^ value >> SHIFT
    };
    let mut pool = [seed, 0, 0, 0].map(&mut hashed);
    for from in 0..POOL {
        for to in (0..POOL).filter(|to| *to != from) {
            let mixed =
                MIX_LEFT.wrapping_mul(pool[to]).wrapping_sub(MIX_RIGHT.wrapping_mul(hashed(pool[from])));
            pool[to] = mixed ^ mixed >> SHIFT;
        }
    }
    let mut hash = INIT_STATE;
    let mut word = |number: usize| {
        let value = pool[number % POOL] ^ hash;
        hash = hash.wrapping_mul(MULTIPLY_STATE);
        let value = value.wrapping_mul(hash);
        u64::from(value ^ value >> SHIFT)
    };
    [0, 2, 4, 6].map(|number| word(number) | word(number + 1) << 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NumPy 2.4.6: `default_rng(12345).integers(0, bound, 8)`.
    #[test]
    fn numbers_are_those_of_numpy() {
        for (bound, expected) in [
            (3, [2, 0, 2, 0, 0, 2, 1, 2]),
            (1000, [699, 227, 788, 316, 204, 797, 642, 676]),
            (
                3_000_000_000,
                [
                    2097645094, 682008066, 2365940964, 950275018, 2392096371, 2028764011, 2518275128,
                    1794926260,
                ],
            ),
        ] {
            let mut generator = Pcg64::seeded(12345);
            assert_eq!([(); 8].map(|()| generator.below(bound)), expected, "{bound}");
        }
        assert_eq!(Pcg64::seeded(12345).below(1), 0);
    }
}
