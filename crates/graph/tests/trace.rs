//! Tracing operations on shapes with dynamic sizes: either the graph is right for every size, or the trace fails.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's way to fail

use tileforge_graph::{DataType, Dim, Model, Result, TensorType, Trace, Value};

/// A model of one operation on an image with these sizes.
fn model_of(dims: [Dim; 4], operation: impl FnOnce(&Value) -> Value) -> Result<Model> {
    let trace = Trace::new("operation", 9, 20);
    let image = trace.input("image", TensorType::new(DataType::F32, dims));
    trace.output("result", &operation(&image));
    trace.finish()
}

fn dynamic(name: &str) -> Dim {
    Dim::symbol(name)
}

#[track_caller]
fn assert_fails(model: Result<Model>, expected: &str) {
    let error = model.unwrap_err().to_string();
    assert!(error.contains(expected), "expected `{expected}` in: {error}");
}

#[test]
fn a_resized_batch_stays_as_large_as_it_is() {
    let resized = |dims| model_of(dims, |image| image.resize_bilinear_to_corners(5, 7)).unwrap().outputs[0].ty.clone();
    for batch in [Dim::Fixed(4), dynamic("batch")] {
        for channels in [Dim::Fixed(3), dynamic("channels")] {
            let expected = [batch.clone(), channels.clone(), Dim::Fixed(5), Dim::Fixed(7)];
            let dims = [batch.clone(), channels, dynamic("height"), Dim::Fixed(9)];
            assert_eq!(resized(dims), TensorType::new(DataType::F32, expected));
        }
    }
}

#[test]
fn what_is_made_of_a_size_fails_where_the_size_is_dynamic() {
    let dims = || [Dim::Fixed(1), dynamic("channels"), Dim::Fixed(4), Dim::Fixed(4)];
    let expected = "expected dimension 1 to have a fixed size, found f32[1,channels,4,4]";
    assert_fails(model_of(dims(), |image| image.pixel_unshuffle(2)), expected);
    assert_fails(model_of(dims(), |image| image.scale_channels(0.5)), expected);
    let sides = |image: &Value| {
        let _: [usize; 4] = image.fixed_dims();
        image.clone()
    };
    assert_fails(model_of(dims(), sides), expected);
}

#[test]
fn a_fixed_size_is_counted_from_either_end() {
    let of_axis = |axis: i64| {
        let mut size = 0;
        let dims = [dynamic("batch"), Dim::Fixed(2), Dim::Fixed(3), Dim::Fixed(4)];
        let made = model_of(dims, |image| {
            size = image.fixed(axis);
            image.clone()
        });
        made.map(|_| size)
    };
    for (axis, size) in [(1, 2), (3, 4), (-1, 4), (-3, 2)] {
        assert_eq!(of_axis(axis).unwrap(), size);
    }
    for axis in [0, -4] {
        assert!(of_axis(axis).unwrap_err().to_string().contains("expected dimension 0 to have a fixed size"));
    }
    for axis in [4, -5, i64::MIN, i64::MAX] {
        assert!(of_axis(axis).unwrap_err().to_string().contains("to have a fixed size"), "{axis}");
    }
}

#[test]
fn affine_sizes_are_written_and_read_alike() {
    for (dim, text) in [
        (Dim::affine("height", 8, 0), "8*height"),
        (Dim::affine("frames", 4, -3), "4*frames-3"),
        (Dim::affine("batch", 1, 0), "batch"),
    ] {
        assert_eq!(dim.to_string(), text);
        assert_eq!(Dim::parse(text), dim);
    }
}
