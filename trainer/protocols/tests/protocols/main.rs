//! Protocols of evaluation on small recurrent models, against naive second ways; and averages of their weights.

mod averages;
mod divided;
mod dynamic;
mod gates;
mod monte_carlo;
mod source;
mod static_protocols;
mod undisturbed;
