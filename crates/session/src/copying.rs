//! Copies between tensors in this machine's memory and on GPUs.
//!
//! `ort` copies by a session of one Identity node for each pair of places. Such a session has libraries' handles and
//! memory of its own on the GPU, and there the copy fails from pinned memory to pinned memory.
//!
//! `unsafe`, because tensors on a GPU are known by their addresses alone, and because C signatures cannot be checked:
//! they come from NVIDIA's reference of the CUDA runtime.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;
use ort::value::DynTensor;

use crate::capture;
use crate::native::{loader_message, symbol};
use crate::system::libraries::CUDA_RUNTIME;

/// `cudaMemcpyDefault`: the addresses say which way.
const BY_ADDRESS: c_int = 4;
/// `cudaStreamPerThread`.
const STREAM_OF_THIS_THREAD: usize = 2;

type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
type CopyAsync = unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int;
type Synchronise = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What copies, from the CUDA runtime that the provider has loaded.
struct Runtime {
    set_device: SetDevice,
    copy: CopyAsync,
    synchronise: Synchronise,
}

/// Copies `bytes` bytes, the whole of both tensors.
///
/// # Errors
/// The CUDA runtime cannot be loaded, or refuses.
pub(crate) fn copy(from: &DynTensor, to: &mut DynTensor, bytes: usize) -> Result<(), String> {
    let on_gpu = [from.memory_info(), to.memory_info()].into_iter().find(|memory| !memory.is_cpu_accessible());
    let device = on_gpu.map(|memory| memory.device_id());
    let (source, target) = (from.data_ptr(), to.data_ptr_mut());
    let Some(device) = device else {
        // SAFETY: both tensors have that many bytes of this machine's memory, and `to` is borrowed alone.
        unsafe { ptr::copy_nonoverlapping(source.cast::<u8>(), target.cast::<u8>(), bytes) };
        return Ok(());
    };
    let runtime = runtime()?;
    let _running = capture::shared();
    let stream = STREAM_OF_THIS_THREAD as *mut c_void;
    // SAFETY: the signatures are those of the reference. Both tensors have that many bytes, and stay until the stream
    // has finished.
    unsafe {
        check("cudaSetDevice", (runtime.set_device)(device))?;
        check("cudaMemcpyAsync", (runtime.copy)(target, source, bytes, BY_ADDRESS, stream))?;
        check("cudaStreamSynchronize", (runtime.synchronise)(stream))
    }
}

fn runtime() -> Result<&'static Runtime, String> {
    static RUNTIME: OnceLock<Result<Runtime, String>> = OnceLock::new();
    RUNTIME.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Runtime, String> {
    // SAFETY: the library's initialisers have no preconditions; the provider has loaded it already.
    let library = unsafe { Library::new(CUDA_RUNTIME) }.map_err(loader_message)?;
    // SAFETY: the signatures are those of the reference, stable since CUDA 7.
    let runtime = unsafe {
        Runtime {
            set_device: *symbol::<SetDevice>(&library, "cudaSetDevice")?,
            copy: *symbol::<CopyAsync>(&library, "cudaMemcpyAsync")?,
            synchronise: *symbol::<Synchronise>(&library, "cudaStreamSynchronize")?,
        }
    };
    // The functions live as long as the library.
    std::mem::forget(library);
    Ok(runtime)
}

fn check(call: &str, status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        // cudaErrorMemoryAllocation
        2 => Err(format!("{call}: out of memory")),
        code => Err(format!("{call} failed with code {code} (see cudaError_t in NVIDIA's reference)")),
    }
}
