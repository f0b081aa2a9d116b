//! Views of insights: who viewed which insight when (`viewed`, [`view_times`]), and how long clients waited (`timing`).

pub mod timing;
pub mod view_times;
pub mod viewed;
