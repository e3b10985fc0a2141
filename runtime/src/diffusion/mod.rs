//! The parts of image diffusion that stand beside the networks.
//!
//! | module | holds |
//! |---|---|
//! | [`random`] | PyTorch's normal numbers on the CPU and on CUDA |
//! | [`schedulers`] | from noise to a picture in steps, as diffusers does it |
//! | [`tokenizer`] | texts to tokens, as transformers does it |

pub mod random;
pub mod schedulers;
pub mod tokenizer;
