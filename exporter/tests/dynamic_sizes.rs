//! Layers that need a size fail the trace where it is dynamic, instead of computing with another size.
#![allow(clippy::unwrap_used)] // a test's way to fail

use tileforge_exporter::nn::{Parameters, Scope, Sequences, conv2d, layer_norm, linear, repeat_channels};
use tileforge_graph::{DataType, Dim, TensorType, Trace, Value};

/// The error of tracing a layer on an input with these sizes.
fn error_of(dims: &[Dim], layer: impl FnOnce(&Scope<'_>, &Value) -> Value) -> String {
    let (trace, parameters) = (Trace::new("layer", 9, 20), Parameters::declared_only());
    let x = trace.input("x", TensorType::new(DataType::F32, dims.iter().cloned()));
    let made = layer(&Scope::root(&trace, &parameters).at("layer"), &x);
    trace.output("made", &made);
    trace.finish().unwrap_err().to_string()
}

#[test]
fn layers_of_dynamic_channels_or_widths_fail() {
    let [batch, channels, side] = ["batch", "channels", "side"].map(Dim::symbol);
    let image = [batch.clone(), channels.clone(), side.clone(), side];
    let tokens = [batch, channels];
    type Layer = fn(&Scope<'_>, &Value) -> Value;
    let of_images: [Layer; 2] = [|w, x| conv2d(w, x, 4, 3), |_, x| repeat_channels(x, 2)];
    let of_tokens: [Layer; 3] =
        [|w, x| linear(w, x, 4), |w, x| layer_norm(w, x, 1e-5), |_, x| Sequences::new(x).rows()];
    for (dims, layers) in [(&image[..], &of_images[..]), (&tokens, &of_tokens)] {
        for layer in layers {
            let error = error_of(dims, layer);
            assert!(error.contains("expected dimension 1 to have a fixed size"), "{error}");
        }
    }
}

#[test]
fn a_weight_that_does_not_divide_into_its_parts_fails() {
    let error = error_of(&[Dim::Fixed(1)], |w, _| w.parts("weight", [7, 2], ["query", "key", "value"])[0].clone());
    assert!(error.contains("layer.weight") && error.contains("divides into 3 parts"), "{error}");
}

#[test]
fn a_level_that_a_list_does_not_have_fails() {
    let error = error_of(&[Dim::Fixed(1)], |w, x| x.scale(w.of_level("heads", &[1, 2], 2) as f32));
    assert!(error.contains("`heads` to have a number for level 2, found [1, 2]"), "{error}");
}
