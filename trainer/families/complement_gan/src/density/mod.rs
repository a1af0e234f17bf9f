//! The density of images: PixelCNN++ (Salimans et al. 2017). So far its network and its likelihood.

pub mod mixture;
pub mod network;
