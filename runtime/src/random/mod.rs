//! The normal numbers that PyTorch draws for a seed.
//!
//! | generator | is equal to |
//! |---|---|
//! | [`TorchCpu`] | `torch.randn` in float32 with `torch.Generator("cpu").manual_seed(seed)`, bit for bit |
//! | [`Philox`] | the same on CUDA: equal integers, normal numbers within 1e-6 |

mod mersenne_twister;
mod philox;
mod torch_cpu;
mod vector_math;

pub use philox::Philox;
pub use torch_cpu::TorchCpu;

/// A source of standard normal numbers.
///
/// One call is one tensor: two calls for 8 values are not one call for 16.
pub trait Noise {
    /// Fills `values` with the numbers of one tensor, in row-major order.
    fn fill(&mut self, values: &mut [f32]);

    /// The numbers of one tensor of `count` elements.
    fn normal(&mut self, count: usize) -> Vec<f32> {
        let mut values = vec![0.0; count];
        self.fill(&mut values);
        values
    }
}
