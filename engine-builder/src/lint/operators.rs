//! The table of operators that TensorRT's parser takes (`data/tensorrt-operators.txt`, with its source).

use super::target::Target;
use tileforge_graph::DataType;

static TABLE: &str = include_str!("../../data/tensorrt-operators.txt");

/// What the table says about one operator.
pub(super) enum Support {
    /// Supported, for data of these types.
    Yes(Vec<&'static str>),
    /// Not supported.
    No,
    /// Supported from this version on.
    Since(&'static str),
    /// The table does not list it.
    Unknown,
}

/// Whether the parser of `target` supports an operator.
pub(super) fn support(operator: &str, target: Target) -> Support {
    let rows = TABLE.lines().filter(|line| !line.starts_with('#'));
    let row = rows.filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == operator);
    let Some((_, rest)) = row else { return Support::Unknown };
    let (types, since) = rest.split_once(" since ").map_or((rest, None), |(types, since)| (types, Some(since)));
    match since {
        _ if types == "-" => Support::No,
        Some(since) if !target.has(since) => Support::Since(since),
        _ => Support::Yes(types.split(' ').collect()),
    }
}

/// A type, by its name in the table.
pub(super) fn type_name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::F32 => "FP32",
        DataType::F16 => "FP16",
        DataType::Bf16 => "BF16",
        DataType::F64 => "DOUBLE",
        DataType::F8E4M3 => "FP8",
        DataType::I64 => "INT64",
        DataType::I32 => "INT32",
        DataType::I8 => "INT8",
        DataType::U8 => "UINT8",
        DataType::Bool => "BOOL",
        // The table supports no data of these types.
        DataType::F8E5M2 | DataType::I16 | DataType::U64 | DataType::U32 | DataType::U16 => data_type.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        assert!(
            matches!(support("Conv", Target::TensorRt10), Support::Yes(types) if types == ["FP32", "FP16", "BF16"])
        );
        assert!(matches!(support("QLinearConv", Target::TensorRt10), Support::No));
        assert!(matches!(support("Swish", Target::TensorRt10), Support::Since("11.0")));
        assert!(matches!(support("Swish", Target::TensorRt11), Support::Yes(_)));
        assert!(matches!(support("Attention", Target::TensorRt10), Support::Yes(_)));
        assert!(matches!(support("FusedConv", Target::TensorRt11), Support::Unknown));
    }

    #[test]
    fn every_row_has_known_types() {
        let known = ["FP32", "FP16", "BF16", "FP8", "INT64", "INT32", "INT8", "INT4", "UINT8", "BOOL"];
        let rows: Vec<&str> = TABLE.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(rows.len(), 198);
        for row in rows {
            let (_, types) = row.split_once(' ').unwrap();
            let types = types.split_once(" since ").map_or(types, |(types, _)| types);
            assert!(types == "-" || types.split(' ').all(|name| known.contains(&name)), "{row}");
        }
    }
}
