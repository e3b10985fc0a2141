//! The parts of image diffusion that stand beside the networks.
//!
//! | module | holds |
//! |---|---|
//! | [`random`] | PyTorch's normal numbers on the CPU and on CUDA |

pub mod random;
