use tch::Tensor;

/// What lanes keep from batch to batch: named tables by lane. Nobody writes to a table once it is made: a checkpoint that is
/// being written shares it.
pub trait Carry {
    /// Tables of `[lanes, ..]` with their names, always the same; none where lanes carry nothing.
    fn tables(&self) -> Vec<(String, Tensor)>;

    /// The carry of these tables, which have the names and the order of [`Carry::tables`].
    fn of_tables(&self, tables: Vec<Tensor>) -> Self;

    /// Lets the lanes that `lanes` marks begin anew, as those of `fresh` do. Several entries a lane are of equal parts of its tables, one after
    /// the other.
    fn forget(&mut self, lanes: &[bool], fresh: Self);
}

impl Carry for () {
    fn tables(&self) -> Vec<(String, Tensor)> {
        Vec::new()
    }

    fn of_tables(&self, _: Vec<Tensor>) -> Self {}

    fn forget(&mut self, _: &[bool], (): Self) {}
}
