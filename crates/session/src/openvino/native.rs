//! Calls of OpenVINO's C API.
//!
//! `unsafe`, because opening a library runs its initialisers, and because C functions cannot check pointers. Signatures
//! come from `openvino-sys`, which is generated from OpenVINO's headers. Every status is checked, and every object is
//! freed by the value that owns it.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use openvino_sys as sys;
use ort::value::{DynTensorValueType, ValueRef};
use tileforge_contract::DataType;

use crate::buffer::Buffer;
use crate::cancel::{Cancel, Interrupt};
use crate::tensor::Tensor;

/// A result with OpenVINO's error message, or a problem with its answer.
type Result<T, E = String> = std::result::Result<T, E>;

/// Type and shape of an input or output; `None` for a type that contracts lack, and for each length that the graph
/// leaves open.
pub(crate) type Described = (Option<DataType>, Vec<Option<usize>>);

/// The device that computes on the processor.
const DEVICE: &CStr = c"CPU";

/// Turns a status into the library's message.
fn succeeded(status: sys::ov_status_e) -> Result<()> {
    if status == sys::ov_status_e::OK {
        return Ok(());
    }
    // SAFETY: the library gives a terminated string of its own for this thread, or null.
    let message = unsafe {
        let message = sys::ov_get_last_err_msg();
        (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().trim().to_owned())
    };
    Err(message.filter(|message| !message.is_empty()).unwrap_or_else(|| format!("{status:?}")))
}

/// A text without NUL, for C.
fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| format!("{}: expected text without NUL", text.escape_debug()))
}

/// An object of the library that is freed once, when its owner is dropped.
macro_rules! object {
    ($(#[$about:meta])* $name:ident, $raw:ty, $free:path) => {
        $(#[$about])*
        pub(crate) struct $name(*mut $raw);

        impl $name {
            /// The object that `make` writes to its pointer.
            fn made(make: impl FnOnce(*mut *mut $raw) -> sys::ov_status_e) -> Result<Self> {
                let mut made = ptr::null_mut();
                succeeded(make(&mut made))?;
                if made.is_null() { Err("it gave nothing".into()) } else { Ok(Self(made)) }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the pointer comes from the library and is freed only here.
                unsafe { $free(self.0) };
            }
        }

        // SAFETY: the library's objects are not tied to a thread.
        unsafe impl Send for $name {}
    };
}

object! {
    /// OpenVINO's core object, which knows its devices.
    Core, sys::ov_core_t, sys::ov_core_free
}
object! {
    /// A graph that was read.
    Model, sys::ov_model_t, sys::ov_model_free
}
object! {
    /// A graph that was compiled. Requests of one share its weights.
    Compiled, sys::ov_compiled_model_t, sys::ov_compiled_model_free
}
object! {
    /// A run of a compiled graph, with the tensors that it reads and writes.
    Run, sys::ov_infer_request_t, sys::ov_infer_request_free
}
object! {
    /// An input or output of a compiled graph.
    Port, sys::ov_output_const_port_t, sys::ov_output_const_port_free
}
object! {
    /// A tensor.
    Values, sys::ov_tensor_t, sys::ov_tensor_free
}

// SAFETY: OpenVINO documents `Core` and `CompiledModel` as safe to use from several threads.
unsafe impl Sync for Core {}
// SAFETY: as for `Core`.
unsafe impl Sync for Compiled {}
// SAFETY: only the one `Request` of a run calls it, except for `cancel` (`End`), which OpenVINO allows at any time.
unsafe impl Sync for Run {}

/// A run of a compiled graph, with the tensors that it reads and writes.
pub(crate) struct Request {
    run: Arc<Run>,
    /// The bound buffers. Dropped after the run, unless an [`End`] still holds the run.
    bound: BTreeMap<String, ValueRef<'static, DynTensorValueType>>,
}

/// Ends a run of a request, from another thread.
pub(crate) struct End(Arc<Run>);

// SAFETY: a run's buffers are plain memory, which is not tied to a thread.
unsafe impl Send for Request {}

impl Interrupt for End {
    fn interrupt(&self) {
        // SAFETY: the request is alive. The call is allowed at any time.
        if let Err(error) = succeeded(unsafe { sys::ov_infer_request_cancel(self.0.0) }) {
            tracing::warn!("a run cannot be ended: {error}");
        }
    }
}

impl Core {
    /// Loads the library for the rest of the process.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        sys::library::load_from(path)?;
        Self::new()
    }

    /// Another core of the loaded library, with settings of its own.
    fn new() -> Result<Self> {
        // SAFETY: the library is loaded; the pointer is that of a live local.
        Self::made(|core| unsafe { sys::ov_core_create(core) })
    }

    /// The library's version, such as "2026.4.1-22002-abcdef".
    pub(crate) fn version(&self) -> Result<String> {
        let mut version = sys::ov_version_t { buildNumber: ptr::null(), description: ptr::null() };
        // SAFETY: the library is loaded; it fills the structure with terminated strings, which are copied and freed.
        unsafe {
            succeeded(sys::ov_get_openvino_version(&mut version))?;
            let number = version.buildNumber;
            let text = (!number.is_null()).then(|| CStr::from_ptr(number).to_string_lossy().into_owned());
            sys::ov_version_free(&mut version);
            text.ok_or_else(|| "it does not report its version".into())
        }
    }

    /// A property of the processor, by OpenVINO's name.
    pub(crate) fn property(&self, name: &CStr) -> Result<String> {
        let mut text: *mut c_char = ptr::null_mut();
        // SAFETY: the strings are terminated; what the library writes is copied and freed by its own function.
        unsafe {
            succeeded(sys::ov_core_get_property(self.0, DEVICE.as_ptr(), name.as_ptr(), &mut text))?;
            let copied = (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            sys::ov_free(text);
            Ok(copied.unwrap_or_default())
        }
    }

    /// Reads the graph in the ONNX file with these bytes. Weights that it uses from memory must stay there as long as
    /// the graph and its compiled graphs live.
    pub(crate) fn read(&self, onnx: &[u8]) -> Result<Model> {
        // SAFETY: pointer and length are those of the bytes, which the library copies while it reads them.
        Model::made(|model| unsafe {
            sys::ov_core_read_model_from_memory_buffer(self.0, onnx.as_ptr().cast(), onnx.len(), ptr::null(), model)
        })
    }

    /// Compiles a graph for the processor.
    pub(crate) fn compile(&self, model: &Model, properties: &[(String, String)]) -> Result<Compiled> {
        with_pairs(properties, |pairs| {
            // SAFETY: both objects are alive; the strings live until the call returns.
            Compiled::made(|compiled| unsafe {
                let (count, pairs) = (pairs.len(), pairs.as_ptr());
                sys::ov_core_compile_model_props(self.0, model.0, DEVICE.as_ptr(), count, pairs, compiled)
            })
        })
    }
}

/// Calls `call` with the properties as C structures.
fn with_pairs<R>(properties: &[(String, String)], call: impl FnOnce(&[sys::ov_property_t]) -> Result<R>) -> Result<R> {
    let texts = properties.iter().map(|(key, value)| Ok((c_string(key)?, c_string(value)?)));
    let texts = texts.collect::<Result<Vec<_>>>()?;
    let pair =
        |(key, value): &(CString, CString)| sys::ov_property_t { key: key.as_ptr(), value: value.as_ptr().cast() };
    call(&texts.iter().map(pair).collect::<Vec<_>>())
}

impl Compiled {
    /// Opens what [`Compiled::export`] wrote. The bytes must be trusted, like a program. With the same properties, the
    /// graph computes as before. Its weights stay in these bytes, which must live as long as the graph.
    pub(crate) fn import(bytes: &[u8], properties: &[(String, String)]) -> Result<Self> {
        // The call takes no properties, and the file has none: without them the graph would compute in BF16. So they
        // are set on a separate core, which no other graph uses.
        let core = Core::new()?;
        with_pairs(properties, |pairs| {
            // SAFETY: the object is alive; the strings live until the call returns.
            succeeded(unsafe { sys::ov_core_set_properties(core.0, DEVICE.as_ptr(), pairs.len(), pairs.as_ptr()) })
        })?;
        // SAFETY: pointer and length are those of the bytes, which the caller keeps.
        Self::made(|compiled| unsafe {
            sys::ov_core_import_model(core.0, bytes.as_ptr().cast(), bytes.len(), DEVICE.as_ptr(), compiled)
        })
    }

    /// Writes it to a new file, with its weights.
    pub(crate) fn export(&self, path: &Path) -> Result<()> {
        let name = path.to_str().ok_or_else(|| "expected a path in UTF-8".to_owned())?;
        let name = c_string(name)?;
        // SAFETY: the object is alive, and the string is terminated.
        succeeded(unsafe { sys::ov_compiled_model_export_model(self.0, name.as_ptr()) })
    }

    /// Type and shape of an input.
    pub(crate) fn input(&self, name: &str) -> Result<Described> {
        let name = c_string(name)?;
        // SAFETY: the object is alive, and the string is terminated.
        Port::made(|port| unsafe { sys::ov_compiled_model_input_by_name(self.0, name.as_ptr(), port) })?.described()
    }

    /// Type and shape of an output.
    pub(crate) fn output(&self, name: &str) -> Result<Described> {
        let name = c_string(name)?;
        // SAFETY: the object is alive, and the string is terminated.
        Port::made(|port| unsafe { sys::ov_compiled_model_output_by_name(self.0, name.as_ptr(), port) })?.described()
    }

    /// A request, which has memory of its own for values.
    pub(crate) fn request(&self) -> Result<Request> {
        // SAFETY: the object is alive.
        let run = Run::made(|run| unsafe { sys::ov_compiled_model_create_infer_request(self.0, run) })?;
        Ok(Request { run: Arc::new(run), bound: BTreeMap::new() })
    }
}

impl Port {
    fn described(&self) -> Result<Described> {
        let mut element = sys::ov_element_type_e::DYNAMIC;
        // SAFETY: the port is alive; the pointer is that of a live local.
        succeeded(unsafe { sys::ov_port_get_element_type(self.0, &mut element) })?;
        let mut shape = sys::ov_partial_shape_t { rank: sys::ov_dimension_t { min: 0, max: 0 }, dims: ptr::null_mut() };
        // SAFETY: as above. The library gives as many dimensions as the rank says, which are copied and freed.
        let dims = unsafe {
            succeeded(sys::ov_port_get_partial_shape(self.0, &mut shape))?;
            let rank = usize::try_from(shape.rank.max).ok().filter(|_| shape.rank.min == shape.rank.max);
            let dims = rank.map(|rank| {
                if rank == 0 || shape.dims.is_null() {
                    return Vec::new();
                }
                let length = |dim: &sys::ov_dimension_t| usize::try_from(dim.min).ok().filter(|_| dim.min == dim.max);
                std::slice::from_raw_parts(shape.dims, rank).iter().map(length).collect()
            });
            sys::ov_partial_shape_free(&mut shape);
            dims
        };
        Ok((data_type(element), dims.ok_or("a tensor has any number of axes, and a fixed number is needed")?))
    }
}

impl Request {
    /// Lets the request read or write a buffer, which it keeps until the name gets another one.
    pub(crate) fn bind(&mut self, name: &str, buffer: &Buffer) -> Result<()> {
        // A view shares the ownership of its value. Only the lifetime in `ort` ties it to the value. SAFETY: the
        // memory lives as long as the view, which is kept below as long as the request may use it.
        let view = unsafe { std::mem::transmute::<ValueRef<'_, _>, ValueRef<'static, _>>(buffer.tensor.view()) };
        let mut lengths: Vec<i64> = buffer.shape().iter().map(|&length| length as i64).collect();
        let shape = sys::ov_shape_t { rank: lengths.len() as i64, dims: lengths.as_mut_ptr() };
        let (element, memory) = (element(buffer.data_type()), buffer.tensor.data_ptr().cast_mut());
        // SAFETY: the memory holds as many elements as the shape says, and `lengths` lives until the call returns.
        let tensor =
            Values::made(|tensor| unsafe { sys::ov_tensor_create_from_host_ptr(element, shape, memory, tensor) })?;
        self.set(name, &tensor)?;
        self.bound.insert(name.to_owned(), view);
        Ok(())
    }

    /// Copies a value to the library's own memory, for the request to read.
    pub(crate) fn write(&mut self, name: &str, value: &Tensor) -> Result<()> {
        let mut lengths: Vec<i64> = value.shape().iter().map(|&length| length as i64).collect();
        let shape = sys::ov_shape_t { rank: lengths.len() as i64, dims: lengths.as_mut_ptr() };
        // SAFETY: `lengths` lives until the call returns.
        let tensor =
            Values::made(|tensor| unsafe { sys::ov_tensor_create(element(value.data_type()), shape, tensor) })?;
        let bytes = value.to_bytes();
        let (mut size, mut data) = (0, ptr::null_mut());
        // SAFETY: the tensor is alive, and has as many bytes as it says.
        unsafe {
            succeeded(sys::ov_tensor_get_byte_size(tensor.0, &mut size))?;
            succeeded(sys::ov_tensor_data(tensor.0, &mut data))?;
            if size != bytes.len() {
                return Err(format!("expected a tensor of {} bytes, found {size}", bytes.len()));
            }
            if size > 0 {
                ptr::copy_nonoverlapping(bytes.as_ptr(), data.cast::<u8>(), size);
            }
        }
        self.set(name, &tensor)
    }

    fn set(&mut self, name: &str, tensor: &Values) -> Result<()> {
        let name = c_string(name)?;
        // SAFETY: both objects are alive, and the string is terminated. The request shares the tensor.
        succeeded(unsafe { sys::ov_infer_request_set_tensor(self.run.0, name.as_ptr(), tensor.0) })
    }

    /// An interrupt for its runs.
    pub(crate) fn end(&self) -> End {
        End(self.run.clone())
    }

    /// Runs the graph on the library's threads, and waits for them.
    pub(crate) fn run(&mut self, cancel: &Cancel) -> Result<()> {
        // SAFETY: the request is alive, and so are its bound buffers.
        succeeded(unsafe { sys::ov_infer_request_start_async(self.run.0) })?;
        // A request that has not started cannot be ended, so check once more for a flag that was set just before.
        if cancel.is_cancelled() {
            self.end().interrupt();
        }
        // SAFETY: the request is alive.
        succeeded(unsafe { sys::ov_infer_request_wait(self.run.0) })
    }

    /// Shape and bytes of a tensor after a run.
    pub(crate) fn read<R>(&self, name: &str, read: impl FnOnce(&[usize], &[u8]) -> R) -> Result<R> {
        let name = c_string(name)?;
        // SAFETY: the request is alive, and the string is terminated.
        let tensor =
            Values::made(|tensor| unsafe { sys::ov_infer_request_get_tensor(self.run.0, name.as_ptr(), tensor) })?;
        let (mut shape, mut bytes, mut data) = (sys::ov_shape_t { rank: 0, dims: ptr::null_mut() }, 0, ptr::null_mut());
        // SAFETY: the tensor is alive until the end of this function; the library returns as many lengths as the rank,
        // which are copied and freed, and as many bytes as the byte size.
        unsafe {
            succeeded(sys::ov_tensor_get_shape(tensor.0, &mut shape))?;
            let rank = usize::try_from(shape.rank).unwrap_or(0);
            let lengths = if rank == 0 || shape.dims.is_null() {
                Ok(Vec::new())
            } else {
                let lengths = std::slice::from_raw_parts(shape.dims, rank).iter();
                lengths.map(|&length| usize::try_from(length)).collect()
            };
            sys::ov_shape_free(&mut shape);
            let lengths: Vec<usize> = lengths.map_err(|_| "a tensor has a negative length")?;
            succeeded(sys::ov_tensor_get_byte_size(tensor.0, &mut bytes))?;
            succeeded(sys::ov_tensor_data(tensor.0, &mut data))?;
            let values = if bytes == 0 { &[] } else { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
            Ok(read(&lengths, values))
        }
    }
}

/// OpenVINO's name for an element type.
fn element(data_type: DataType) -> sys::ov_element_type_e {
    use sys::ov_element_type_e as element;
    match data_type {
        DataType::F32 => element::F32,
        DataType::F16 => element::F16,
        DataType::Bf16 => element::BF16,
        DataType::F64 => element::F64,
        DataType::F8E4M3 => element::F8E4M3,
        // The name in the C API is a typing error: the type is float8 with five bits of exponent and two of mantissa.
        DataType::F8E5M2 => element::F8E5M3,
        DataType::I64 => element::I64,
        DataType::I32 => element::I32,
        DataType::I16 => element::I16,
        DataType::I8 => element::I8,
        DataType::U64 => element::U64,
        DataType::U32 => element::U32,
        DataType::U16 => element::U16,
        DataType::U8 => element::U8,
        DataType::Bool => element::OV_BOOLEAN,
    }
}

/// The element type with this name in OpenVINO.
fn data_type(found: sys::ov_element_type_e) -> Option<DataType> {
    DataType::ALL.iter().copied().find(|data_type| element(*data_type) == found)
}
