use tch::{Device, Tensor};

/// Token ids where a model reads them, and in the host's memory where they have come from there: what depends on their values, such as
/// how many lie in a cluster, the host tells without waiting for a card.
#[derive(Debug)]
pub struct Ids {
    here: Tensor,
    host: Option<Tensor>,
}

impl Ids {
    /// `host` holds the same ids in the same shape.
    pub fn new(here: &Tensor, host: Option<&Tensor>) -> Self {
        Self { here: here.shallow_clone(), host: host.map(Tensor::shallow_clone) }
    }

    /// What `f`, which changes no value, makes of them.
    pub fn map(&self, f: impl Fn(&Tensor) -> Tensor) -> Self {
        Self { here: f(&self.here), host: self.host.as_ref().map(f) }
    }

    /// Where the model reads them.
    pub fn here(&self) -> &Tensor {
        &self.here
    }

    /// All of them, the last axis first to move on. Waits for a card where the host does not have them.
    pub fn numbers(&self) -> Vec<i64> {
        let ids = self.host.as_ref().unwrap_or(&self.here).to_device(Device::Cpu).reshape([-1]);
        Vec::try_from(&ids).expect("ids are whole numbers of 64 bits")
    }
}

impl From<&Tensor> for Ids {
    fn from(ids: &Tensor) -> Self {
        Self::new(ids, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_that_the_host_has() {
        let [here, host] = [[1i64, 2, 3, 4], [5, 6, 7, 8]].map(|ids| Tensor::from_slice(&ids).view([2, 2]));
        assert_eq!(Ids::from(&here).numbers(), [1, 2, 3, 4]);
        let ids = Ids::new(&here, Some(&host)).map(|ids| ids.narrow(1, 1, 1));
        assert_eq!((ids.numbers(), ids.here()), (vec![6, 8], &here.narrow(1, 1, 1)));
    }
}
