//! Calls into shared libraries that are checked before anything relies on them.
//!
//! `unsafe`, because opening a library runs its initialisers, and because C signatures cannot be checked. ONNX
//! Runtime's signatures come from `onnxruntime_c_api.h` (through `ort::sys`), the CUDA driver's from NVIDIA's driver
//! API reference, and NVML's from `nvml.h`. Every returned pointer is checked.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{mem, ptr};

use libloading::{Library, Symbol};
use ort::AsPointer;
use ort::memory::{AllocationDevice, Allocator, AllocatorType, MemoryInfo, MemoryType};
use ort::session::builder::SessionBuilder;
use ort::value::TensorElementType;

use crate::assigned::Assigned;
use crate::system::heap::set_large_blocks;

/// Opens a library and closes it again.
pub(crate) fn opens(name: impl AsRef<OsStr>) -> Result<(), String> {
    // SAFETY: the initialisers of NVIDIA's and ONNX Runtime's libraries have no preconditions.
    unsafe { Library::new(name.as_ref()) }.map(drop).map_err(loader_message)
}

/// Opens a library for the rest of the process.
pub(crate) fn load_for_good(name: impl AsRef<OsStr>) -> Result<(), String> {
    // SAFETY: as in `opens`.
    let library = unsafe { Library::new(name.as_ref()) }.map_err(loader_message)?;
    mem::forget(library);
    Ok(())
}

/// The version of TensorRT, such as "10.14.1".
pub(crate) fn tensorrt_version(path: &Path) -> Result<String, String> {
    // SAFETY: as in `opens`; the library stays open while its function is called.
    let library = unsafe { Library::new(path) }.map_err(loader_message)?;
    // SAFETY: the signature is that of NvInferRuntimeBase.h: no argument, a 32-bit integer back.
    let version = unsafe { symbol::<unsafe extern "C" fn() -> c_int>(&library, "getInferLibVersion") }?;
    // SAFETY: as above.
    let version = unsafe { version() };
    // From TensorRT 10 on: 10,000 · major + 100 · minor + patch.
    Ok(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100))
}

/// The release of TensorRT for RTX, such as "1.7.1.116".
pub(crate) fn tensorrt_rtx_version(path: &Path) -> Result<String, String> {
    // SAFETY: as in `opens`; the library stays open while its functions are called.
    let library = unsafe { Library::new(path) }.map_err(loader_message)?;
    let number = |part: &str| {
        let name = format!("getInferLib{part}Version");
        // SAFETY: the signatures are those of NvInferRuntime.h: no argument, a 32-bit integer back.
        let function = unsafe { symbol::<unsafe extern "C" fn() -> c_int>(&library, &name) }?;
        // SAFETY: as above.
        Ok::<_, String>(unsafe { function() }.to_string())
    };
    let numbers = ["Major", "Minor", "Patch", "Build"].map(number);
    Ok(numbers.into_iter().collect::<Result<Vec<_>, _>>()?.join("."))
}

/// The loader's error with its cause, which names the file and the problem.
pub(crate) fn loader_message(error: libloading::Error) -> String {
    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Whether a shared library is a usable ONNX Runtime.
pub(crate) enum OnnxRuntimeApi {
    /// It has the wanted version of the C API.
    Usable(String),
    /// It is ONNX Runtime, but does not have the wanted version of the C API.
    TooOld(String),
    /// It can be opened, but is something else.
    Foreign,
}

/// Asks a library for its ONNX Runtime version, and whether it has C API number `wanted`.
///
/// `ort` does this too, but panics if the library is not ONNX Runtime.
pub(crate) fn onnxruntime_api(path: &OsStr, wanted: u32) -> Result<OnnxRuntimeApi, String> {
    // SAFETY: as in `opens`; the library stays open while `base` is used.
    let library = unsafe { Library::new(path) }.map_err(loader_message)?;
    // SAFETY: the signature of `OrtGetApiBase` has not changed since the first release.
    let entry: Result<Symbol<'_, unsafe extern "system" fn() -> *const ort::sys::OrtApiBase>, _> =
        unsafe { library.get(b"OrtGetApiBase\0") };
    let Ok(entry) = entry else { return Ok(OnnxRuntimeApi::Foreign) };
    // SAFETY: the function takes no argument and returns a pointer to a static, or null.
    let Some(base) = (unsafe { entry().as_ref() }) else { return Ok(OnnxRuntimeApi::Foreign) };
    // SAFETY: `base` is that static; the function returns a static C string.
    let version = unsafe { (base.GetVersionString)() };
    if version.is_null() {
        return Ok(OnnxRuntimeApi::Foreign);
    }
    // SAFETY: not null, and terminated as the header promises.
    let version = unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned();
    // If asked for a version that it lacks, ONNX Runtime prints a line. So its version is checked first: API number N
    // came with release 1.N.
    let release = version.strip_prefix("1.").and_then(|rest| rest.split('.').next());
    if release.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|minor| minor < wanted) {
        return Ok(OnnxRuntimeApi::TooOld(version));
    }
    // SAFETY: `GetApi` returns null for a version that it does not have.
    let api = unsafe { (base.GetApi)(wanted) };
    Ok(if api.is_null() { OnnxRuntimeApi::TooOld(version) } else { OnnxRuntimeApi::Usable(version) })
}

/// Disables ONNX Runtime's telemetry: no device id, no database of events, no sending. Release builds for Linux start
/// it when the library is loaded, so the session options about telemetry come too late.
pub(crate) fn disable_telemetry() {
    // SAFETY: programs load the library before they start threads that could read the environment through C. Rust's own
    // access to it is locked.
    unsafe { std::env::set_var("ORT_DISABLE_TELEMETRY", "1") };
}

/// A weight that a graph takes from memory.
pub(crate) struct MappedWeight<'m> {
    pub(crate) name: String,
    pub(crate) element: TensorElementType,
    pub(crate) dims: Vec<i64>,
    pub(crate) bytes: &'m [u8],
}

/// Gives a session that is being made the weights of its graph. ONNX Runtime may use the bytes in place as long as the
/// session lives, so the caller keeps them. They begin at a multiple of their element's size. Release 1.31 copies them
/// while it opens the session, so files are better where ONNX Runtime can open them.
///
/// `ort` has this function only for typed arrays. Its function for whole files copies every file to the heap, and ONNX
/// Runtime then copies it again.
pub(crate) fn add_weights(builder: &mut SessionBuilder, weights: &[MappedWeight<'_>]) -> Result<(), String> {
    /// Values to release, also after an error.
    #[derive(Default)]
    struct Values(Vec<*mut ort::sys::OrtValue>);
    impl Drop for Values {
        fn drop(&mut self) {
            for value in &self.0 {
                // SAFETY: each value was made by ONNX Runtime and is released once.
                unsafe { (ort::api().ReleaseValue)(*value) };
            }
        }
    }
    let api = ort::api();
    let memory = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::CPUInput)
        .map_err(|error| error.to_string())?;
    let names = weights.iter().map(|weight| CString::new(weight.name.as_str())).collect::<Result<Vec<_>, _>>();
    let names = names.map_err(|error| error.to_string())?;
    let mut values = Values::default();
    for MappedWeight { element, dims, bytes, .. } in weights {
        let (data, element) = (bytes.as_ptr().cast_mut().cast(), (*element).into());
        let mut value = ptr::null_mut();
        // SAFETY: the bytes and the sizes are alive. ONNX Runtime checks that the bytes suffice for the sizes. It takes
        // a pointer to mutable bytes for all tensors, and does not write to weights.
        succeeded(unsafe {
            (api.CreateTensorWithDataAsOrtValue)(
                memory.ptr(),
                data,
                bytes.len(),
                dims.as_ptr(),
                dims.len(),
                element,
                &mut value,
            )
        })?;
        values.0.push(value);
    }
    let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let made: Vec<*const ort::sys::OrtValue> = values.0.iter().map(|value| value.cast_const()).collect();
    // SAFETY: both arrays have the same number of entries, which are alive; the options copy the names and share the
    // values.
    succeeded(unsafe {
        (api.AddExternalInitializers)(builder.ptr().cast_mut(), pointers.as_ptr(), made.as_ptr(), made.len())
    })
}

/// While a value of this type lives, freed large blocks of memory go back to the system at once.
///
/// glibc maps each large block separately. When such a block is freed, glibc raises its threshold: later blocks up to
/// that size come from the heap, which keeps freed blocks that lie between blocks in use. ONNX Runtime frees each
/// weight after it has copied it, and allocates the next one: the heap then grows to twice the weights (mallopt(3),
/// `M_MMAP_THRESHOLD`).
pub(crate) struct LargeBlocksReturn(());

/// Number of live values.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

impl LargeBlocksReturn {
    pub(crate) fn new() -> Self {
        if RETURNING.fetch_add(1, Ordering::SeqCst) == 0 {
            set_large_blocks(1 << 20);
        }
        Self(())
    }
}

impl Drop for LargeBlocksReturn {
    fn drop(&mut self) {
        if RETURNING.fetch_sub(1, Ordering::SeqCst) == 1 {
            // glibc's own largest threshold on 64-bit machines, which it reaches when large pictures are freed.
            set_large_blocks(32 << 20);
        }
    }
}

/// The providers that took the nodes of a session's graph, with their numbers of nodes, the largest number first.
///
/// `ort` has no function for this yet.
pub(crate) fn assignment(session: &ort::session::Session) -> Result<Vec<Assigned>, String> {
    let api = ort::api();
    let text = |text: *const c_char| {
        // SAFETY: ONNX Runtime gives terminated strings, which live as long as the session.
        (!text.is_null())
            .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
            .ok_or("no name".to_owned())
    };
    let (mut subgraphs, mut count) = (ptr::null(), 0);
    // SAFETY: the session is alive; both results are written through pointers to live locals.
    succeeded(unsafe { (api.Session_GetEpGraphAssignmentInfo)(session.ptr(), &mut subgraphs, &mut count) })?;
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for position in 0..count {
        // SAFETY: `subgraphs` has `count` entries that live as long as the session.
        let subgraph = unsafe { *subgraphs.add(position) };
        let (mut name, mut members, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: as above, with `subgraph` from that list.
        succeeded(unsafe { (api.EpAssignedSubgraph_GetEpName)(subgraph, &mut name) })?;
        // SAFETY: as above.
        succeeded(unsafe { (api.EpAssignedSubgraph_GetNodes)(subgraph, &mut members, &mut size) })?;
        *nodes.entry(text(name)?).or_default() += size;
    }
    let mut assigned: Vec<_> = nodes.into_iter().map(|(provider, nodes)| Assigned { provider, nodes }).collect();
    assigned.sort_by_key(|assigned| Reverse(assigned.nodes));
    Ok(assigned)
}

/// The peak bytes of a session's CPU allocator, beyond what the session holds now, while nothing runs; `None` if the
/// allocator does not report it.
///
/// `ort` has no function for this yet.
pub(crate) fn peak_bytes(session: &ort::session::Session) -> Result<Option<u64>, String> {
    struct Pairs(*mut ort::sys::OrtKeyValuePairs);
    impl Drop for Pairs {
        fn drop(&mut self) {
            // SAFETY: ONNX Runtime passed their ownership to this function, and they are released once.
            unsafe { (ort::api().ReleaseKeyValuePairs)(self.0) };
        }
    }
    let memory = MemoryInfo::new(AllocationDevice::CPU, 0, AllocatorType::Device, MemoryType::Default);
    let allocator = memory.and_then(|memory| Allocator::new(session, memory)).map_err(|error| error.to_string())?;
    let mut found = ptr::null_mut();
    // SAFETY: the allocator is alive; the result is written through a pointer to a live local.
    succeeded(unsafe { (ort::api().AllocatorGetStats)(allocator.ptr(), &mut found) })?;
    if found.is_null() {
        return Ok(None);
    }
    let statistics = Pairs(found);
    let number = |name: &CStr| {
        // SAFETY: the pairs and the name are alive; ONNX Runtime gives a terminated string, or none.
        let text = unsafe { (ort::api().GetKeyValue)(statistics.0, name.as_ptr()) };
        // SAFETY: as above; the string lives as long as the pairs.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().ok()?.parse::<u64>().ok()).flatten()
    };
    Ok(number(c"MaxInUse").zip(number(c"InUse")).map(|(most, now)| most.saturating_sub(now)))
}

fn succeeded(status: ort::sys::OrtStatusPtr) -> Result<(), String> {
    // SAFETY: the status comes from ONNX Runtime and is not used afterwards.
    unsafe { ort::Error::<()>::result_from_status(status) }.map_err(|error| error.to_string())
}

/// What the CUDA driver reports about itself and its devices.
pub(crate) struct CudaDriver {
    /// Highest CUDA version that the driver supports, as 1000 · major + 10 · minor.
    pub(crate) version: c_int,
    pub(crate) devices: Vec<CudaDevice>,
}

/// One CUDA device.
pub(crate) struct CudaDevice {
    pub(crate) name: String,
    pub(crate) compute_capability: (c_int, c_int),
    pub(crate) memory_bytes: u64,
}

const ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
const ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;

/// Queries the CUDA driver, without creating a context on a device.
pub(crate) fn cuda_driver(library: &str) -> Result<CudaDriver, String> {
    type Init = unsafe extern "system" fn(c_uint) -> c_int;
    type GetInteger = unsafe extern "system" fn(*mut c_int) -> c_int;
    type GetDevice = unsafe extern "system" fn(*mut c_int, c_int) -> c_int;
    type GetName = unsafe extern "system" fn(*mut c_char, c_int, c_int) -> c_int;
    type GetAttribute = unsafe extern "system" fn(*mut c_int, c_int, c_int) -> c_int;
    type TotalMemory = unsafe extern "system" fn(*mut usize, c_int) -> c_int;

    // SAFETY: as in `opens`.
    let driver = unsafe { Library::new(library) }.map_err(loader_message)?;
    // SAFETY: for all symbols, signatures as in the CUDA driver API reference, stable since CUDA 4.
    let (init, version_of, count_of, device_at, name_of, attribute_of, memory_of) = unsafe {
        (
            symbol::<Init>(&driver, "cuInit")?,
            symbol::<GetInteger>(&driver, "cuDriverGetVersion")?,
            symbol::<GetInteger>(&driver, "cuDeviceGetCount")?,
            symbol::<GetDevice>(&driver, "cuDeviceGet")?,
            symbol::<GetName>(&driver, "cuDeviceGetName")?,
            symbol::<GetAttribute>(&driver, "cuDeviceGetAttribute")?,
            symbol::<TotalMemory>(&driver, "cuDeviceTotalMem_v2")?,
        )
    };

    // SAFETY: no pointers are passed.
    check("cuInit", unsafe { init(0) })?;
    let (mut version, mut count) = (0, 0);
    // SAFETY: this and the calls below write one value through a pointer to a live local.
    check("cuDriverGetVersion", unsafe { version_of(&mut version) })?;
    // SAFETY: as above.
    check("cuDeviceGetCount", unsafe { count_of(&mut count) })?;

    let mut devices = Vec::new();
    for ordinal in 0..count {
        let (mut device, mut major, mut minor, mut memory) = (0, 0, 0, 0_usize);
        let mut name = [0_u8; 256];
        // SAFETY: as above.
        check("cuDeviceGet", unsafe { device_at(&mut device, ordinal) })?;
        // SAFETY: the driver writes at most 255 bytes and a terminator into 256.
        check("cuDeviceGetName", unsafe { name_of(name.as_mut_ptr().cast(), 255, device) })?;
        for (value, attribute) in
            [(&mut major, ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), (&mut minor, ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)]
        {
            // SAFETY: as above.
            check("cuDeviceGetAttribute", unsafe { attribute_of(value, attribute, device) })?;
        }
        // SAFETY: as above.
        check("cuDeviceTotalMem", unsafe { memory_of(&mut memory, device) })?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        devices.push(CudaDevice {
            name: name.to_string_lossy().into_owned(),
            compute_capability: (major, minor),
            memory_bytes: memory as u64,
        });
    }
    Ok(CudaDriver { version, devices })
}

/// `nvmlMemory_t` of nvml.h.
#[repr(C)]
#[derive(Default)]
struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

type NvmlMemoryInfo = unsafe extern "C" fn(*mut c_void, *mut NvmlMemory) -> c_int;
type NvmlCall = unsafe extern "C" fn() -> c_int;

/// The memory of one GPU, through NVML, which stays open as long as this value lives.
pub(crate) struct GpuMemory {
    handle: *mut c_void,
    memory_of: NvmlMemoryInfo,
    shutdown: NvmlCall,
    /// The library that holds the functions.
    _nvml: Library,
}

impl GpuMemory {
    /// Opens the GPU that has this number in the CUDA driver. NVML has other numbers and ignores
    /// `CUDA_VISIBLE_DEVICES`, so the GPU is found by its place on the PCI bus.
    pub(crate) fn open(nvml: &str, driver: &str, device: u32) -> Result<Self, String> {
        type Handle = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;

        let place = pci_bus_id(driver, device)?;
        // SAFETY: as in `opens`.
        let nvml = unsafe { Library::new(nvml) }.map_err(loader_message)?;
        // SAFETY: for all symbols, signatures as in NVIDIA's nvml.h, stable since their `_v2`.
        let (init, handle_of, memory_of, shutdown) = unsafe {
            (
                *symbol::<NvmlCall>(&nvml, "nvmlInit_v2")?,
                *symbol::<Handle>(&nvml, "nvmlDeviceGetHandleByPciBusId_v2")?,
                *symbol::<NvmlMemoryInfo>(&nvml, "nvmlDeviceGetMemoryInfo")?,
                *symbol::<NvmlCall>(&nvml, "nvmlShutdown")?,
            )
        };
        // SAFETY: no pointers are passed.
        nvml_check("nvmlInit", unsafe { init() })?;
        // From here on, dropping the value closes NVML.
        let mut memory = Self { handle: ptr::null_mut(), memory_of, shutdown, _nvml: nvml };
        // SAFETY: the place is terminated; the result is written through a pointer to a live value.
        nvml_check("nvmlDeviceGetHandleByPciBusId", unsafe { handle_of(place.as_ptr(), &mut memory.handle) })?;
        Ok(memory)
    }

    /// Bytes in use, by all processes.
    pub(crate) fn used(&self) -> Result<u64, String> {
        self.now().map(|memory| memory.used)
    }

    /// Bytes that no process uses.
    pub(crate) fn free(&self) -> Result<u64, String> {
        self.now().map(|memory| memory.free)
    }

    fn now(&self) -> Result<NvmlMemory, String> {
        let mut memory = NvmlMemory::default();
        // SAFETY: the handle is NVML's, which is open; the result is written through a pointer to a live local.
        nvml_check("nvmlDeviceGetMemoryInfo", unsafe { (self.memory_of)(self.handle, &mut memory) })?;
        Ok(memory)
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        // SAFETY: NVML is open, and nothing uses the handle any more. A failure to close has no consequences.
        let _ = unsafe { (self.shutdown)() };
    }
}

/// The PCI bus ID of a GPU, such as "0000:65:00.0", for its number in the CUDA driver.
fn pci_bus_id(library: &str, ordinal: u32) -> Result<CString, String> {
    type Init = unsafe extern "system" fn(c_uint) -> c_int;
    type GetDevice = unsafe extern "system" fn(*mut c_int, c_int) -> c_int;
    type GetPlace = unsafe extern "system" fn(*mut c_char, c_int, c_int) -> c_int;

    // SAFETY: as in `opens`.
    let driver = unsafe { Library::new(library) }.map_err(loader_message)?;
    // SAFETY: for all symbols, signatures as in the CUDA driver API reference, stable since CUDA 4.1.
    let (init, device_at, place_of) = unsafe {
        (
            symbol::<Init>(&driver, "cuInit")?,
            symbol::<GetDevice>(&driver, "cuDeviceGet")?,
            symbol::<GetPlace>(&driver, "cuDeviceGetPCIBusId")?,
        )
    };
    // SAFETY: no pointers are passed.
    check("cuInit", unsafe { init(0) })?;
    let (mut device, mut place) = (0, [0_u8; 64]);
    // SAFETY: one value is written through a pointer to a live local.
    check("cuDeviceGet", unsafe { device_at(&mut device, c_int::try_from(ordinal).unwrap_or(c_int::MAX)) })?;
    // SAFETY: the driver writes at most 63 bytes and a terminator into 64.
    check("cuDeviceGetPCIBusId", unsafe { place_of(place.as_mut_ptr().cast(), 64, device) })?;
    Ok(CStr::from_bytes_until_nul(&place).unwrap_or_default().to_owned())
}

fn nvml_check(call: &str, status: c_int) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("{call} failed with code {status}")) }
}

/// # Safety
/// `T` must be the function's signature.
pub(crate) unsafe fn symbol<'l, T>(library: &'l Library, name: &str) -> Result<Symbol<'l, T>, String> {
    // SAFETY: the caller guarantees the signature.
    unsafe { library.get(name) }.map_err(|_| format!("the library lacks {name}"))
}

fn check(call: &str, status: c_int) -> Result<(), String> {
    // CUresult, from cuda.h: the values that users meet.
    let meaning = match status {
        0 => return Ok(()),
        100 => "no device",
        101 => "invalid device",
        802 => "the system is not ready",
        803 => "the driver and the kernel module differ in version",
        804 => "forward compatibility is not supported on this device",
        _ => "see CUresult in NVIDIA's driver API reference",
    };
    Err(format!("{call} failed with code {status} ({meaning})"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// Builds a shared library from this C code.
    fn library(folder: &Path, name: &str, code: &str) -> PathBuf {
        let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        std::fs::write(&source, code).unwrap();
        let output = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        library
    }

    #[test]
    fn memory_is_that_of_the_gpu_that_cuda_means() {
        let folder = tempfile::tempdir().unwrap();
        // There are two GPUs. CUDA_VISIBLE_DEVICES shows CUDA only the second, which is CUDA's first.
        let driver = library(
            folder.path(),
            "cuda",
            "#include <stdio.h>\n\
             int cuInit(unsigned flags) { return flags; }\n\
             int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal == 0 ? 0 : 101; }\n\
             int cuDeviceGetPCIBusId(char *place, int length, int device) { \
                 return snprintf(place, length, \"0000:%02d:00.0\", device) < 0; }\n",
        );
        let nvml = library(
            folder.path(),
            "nvml",
            "#include <string.h>\n\
             static int open;\n\
             int nvmlInit_v2(void) { open += 1; return 0; }\n\
             int nvmlShutdown(void) { open -= 1; return 0; }\n\
             int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **device) {\n\
                 *device = (void *)\"a GPU\"; return strcmp(place, \"0000:07:00.0\") ? 6 : 0; }\n\
             int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {\n\
                 memory[0] = 1000; memory[1] = 700; memory[2] = 300; return open && !strcmp(device, \"a GPU\") ? 0 : \
                     999; }\n",
        );
        let open = |device| GpuMemory::open(nvml.to_str().unwrap(), driver.to_str().unwrap(), device);
        let memory = open(0).unwrap();
        assert_eq!((memory.used(), memory.free(), memory.used()), (Ok(300), Ok(700), Ok(300)));
        drop(memory);
        assert!(open(1).is_err_and(|problem| problem.contains("cuDeviceGet failed with code 101")));
        assert!(GpuMemory::open("libnone.so", driver.to_str().unwrap(), 0).is_err());
    }
}
