//! ONNX Runtime's own API for model packages.
//!
//! The `ort` crate has no wrapper for it, and this product requests an older version of the C API than the one with
//! model packages. So this module requests that version. The API's tables only grow: an entry keeps its position.
#![allow(unsafe_code)] // calls of ONNX Runtime's C API, with pointers that are valid until the end of each function

use crate::repository;
use ort_sys::{
    ONNXTensorElementDataType, OrtAllocatorType, OrtApi, OrtApiBase, OrtLoggingLevel, OrtMemType, OrtModelPackageApi,
    OrtStatusPtr,
};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

/// The version of the C API that has model packages: ONNX Runtime 1.31.
const VERSION: u32 = 31;

/// The position of `GetModelPackageApi` in the table of that version.
const GET_MODEL_PACKAGE_API: usize = 427;

/// What ONNX Runtime found in a package, and the output of the variant that it chose for the CPU.
#[derive(Debug)]
pub struct OpenedPackage {
    /// The components, with the names of their variants and the provider of each.
    pub components: Vec<(String, Vec<(String, String)>)>,
    /// The variant that was chosen of the component.
    pub variant: String,
    /// The first output of the chosen variant.
    pub output: Vec<f32>,
}

/// Opens a package, selects a variant of a component with options that name no provider (so the CPU is chosen), and
/// runs it with one input.
///
/// # Errors
/// ONNX Runtime's message.
pub fn open_and_run(
    package: &Path,
    component: &str,
    input: (&str, &[i64], &[f32]),
    output: &str,
) -> Result<OpenedPackage, String> {
    let library = repository(".onnxruntime/lib/libonnxruntime.so.1.31.1");
    // SAFETY: each function is called as ONNX Runtime documents it, and every pointer outlives its last use. The
    // objects are not released: the process ends soon.
    unsafe {
        let library = Box::leak(Box::new(libloading::Library::new(library).map_err(|error| error.to_string())?));
        let base: libloading::Symbol<'_, unsafe extern "system" fn() -> *const OrtApiBase> =
            library.get(b"OrtGetApiBase").map_err(|error| error.to_string())?;
        let table = ((*base()).GetApi)(VERSION);
        if table.is_null() {
            return Err(format!("the library has no C API of version {VERSION}"));
        }
        let api: &OrtApi = &*table;
        let entry = *table.cast::<*const c_void>().add(GET_MODEL_PACKAGE_API);
        let get: unsafe extern "system" fn() -> *const OrtModelPackageApi = std::mem::transmute(entry);
        let packages: &OrtModelPackageApi = &*get();
        let check = |status: OrtStatusPtr| {
            if status.0.is_null() { Ok(()) } else { Err(text((api.GetErrorMessage)(status.0))) }
        };

        let mut env = null_mut();
        check((api.CreateEnv)(OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, c"test".as_ptr(), &mut env))?;
        let mut session_options = null_mut();
        check((api.CreateSessionOptions)(&mut session_options))?;
        let mut options = null_mut();
        check((packages.CreateModelPackageOptionsFromSessionOptions)(env, session_options, &mut options))?;
        let mut context = null_mut();
        let root = CString::new(package.to_str().unwrap()).unwrap();
        check((packages.CreateModelPackageContext)(root.as_ptr(), &mut context))?;

        let (mut names, mut count) = (null(), 0);
        check((packages.ModelPackage_GetComponentNames)(context, &mut names, &mut count))?;
        let mut components = Vec::new();
        for name in texts(names, count) {
            let component = CString::new(name.as_str()).unwrap();
            let (mut variants, mut count) = (null(), 0);
            check((packages.ModelPackage_GetVariantNames)(context, component.as_ptr(), &mut variants, &mut count))?;
            let mut with_providers = Vec::new();
            for variant in texts(variants, count) {
                let variant_name = CString::new(variant.as_str()).unwrap();
                let mut provider = null();
                check((packages.ModelPackage_GetVariantEpName)(
                    context,
                    component.as_ptr(),
                    variant_name.as_ptr(),
                    &mut provider,
                ))?;
                with_providers.push((variant, text(provider)));
            }
            components.push((name, with_providers));
        }

        let component = CString::new(component).unwrap();
        let mut selected = null_mut();
        check((packages.SelectComponent)(context, component.as_ptr(), options, &mut selected))?;
        let mut variant = null();
        check((packages.ModelPackageComponent_GetSelectedVariantName)(selected, &mut variant))?;
        let mut session = null_mut();
        check((packages.CreateSession)(env, selected, null(), &mut session))?;

        let mut memory = null_mut();
        let arena = OrtAllocatorType::OrtArenaAllocator;
        check((api.CreateCpuMemoryInfo)(arena, OrtMemType::OrtMemTypeDefault, &mut memory))?;
        let (input_name, shape, values) = input;
        let mut values = values.to_vec();
        let mut tensor = null_mut();
        check((api.CreateTensorWithDataAsOrtValue)(
            memory,
            values.as_mut_ptr().cast(),
            size_of_val(values.as_slice()),
            shape.as_ptr(),
            shape.len(),
            ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            &mut tensor,
        ))?;
        let (input_name, output_name) = (CString::new(input_name).unwrap(), CString::new(output).unwrap());
        let mut result = null_mut();
        check((api.Run)(
            session,
            null(),
            [input_name.as_ptr()].as_ptr(),
            [tensor.cast_const()].as_ptr(),
            1,
            [output_name.as_ptr()].as_ptr(),
            1,
            &mut result,
        ))?;
        let mut info = null_mut();
        check((api.GetTensorTypeAndShape)(result, &mut info))?;
        let mut elements = 0;
        check((api.GetTensorShapeElementCount)(info, &mut elements))?;
        let mut data = null_mut();
        check((api.GetTensorMutableData)(result, &mut data))?;
        let output = std::slice::from_raw_parts(data.cast::<f32>(), elements).to_vec();
        Ok(OpenedPackage { components, variant: text(variant), output })
    }
}

/// A string of the library.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: the library's strings end with NUL and live as long as the object that returned them.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// An array of strings of the library.
unsafe fn texts(pointer: *const *const c_char, count: usize) -> Vec<String> {
    // SAFETY: the library gave the array with its length.
    (0..count).map(|index| unsafe { text(*pointer.add(index)) }).collect()
}
