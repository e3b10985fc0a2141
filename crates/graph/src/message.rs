//! The protobuf message of an ONNX file.

use crate::proto::ModelProto;
use crate::{Budget, Error, Result};
use bytes::Buf;
use prost::Message;
use std::path::Path;

/// The message of the ONNX file with these bytes, within the default budget.
pub(crate) fn decode_message(bytes: impl Buf + AsRef<[u8]>, path: &Path) -> Result<ModelProto> {
    Budget::default().check_file(bytes.as_ref()).map_err(|reason| Error::format(path, reason))?;
    ModelProto::decode(bytes).map_err(|error| Error::format(path, error))
}
