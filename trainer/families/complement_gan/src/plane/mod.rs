//! Study in the plane: data sets of two dimensions, their complement, and pictures of what a discriminator makes of them (Yang 2019, §3.1.4 and Figs. 3.2 to 3.5).

mod draw;
mod sets;

pub use draw::{BoundaryPicture, Cell, fake_share_on_boundary, feature_picture};
pub use sets::{Bounds, Complement, PlaneSet, Points};
