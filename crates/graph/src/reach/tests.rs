use super::*;
use crate::{Attribute, DataType, Node, Port, TensorType, Weight};

/// Operator, inputs, output, attributes.
type Described<'d> = (&'d str, &'d [&'d str], &'d str, &'d [(&'d str, Attribute)]);

/// A graph of `picture` `[1, 3, height, width]`, whose nodes are `(operator, inputs, output, attributes)`.
fn model(size: [usize; 2], nodes: &[Described<'_>], weights: &[(&str, Weight)]) -> Model {
    let node = |(operator, inputs, output, attributes): &Described<'_>| Node {
        name: format!("to {output}"),
        operator: (*operator).into(),
        domain: String::new(),
        inputs: inputs.iter().map(|&name| name.into()).collect(),
        outputs: vec![(*output).into()],
        attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
    };
    let ty = |dims: [usize; 4]| TensorType::new(DataType::F32, dims);
    let mut model = Model {
        inputs: vec![Port { name: "picture".into(), ty: ty([1, 3, size[0], size[1]]) }],
        outputs: vec![Port { name: "made".into(), ty: ty([1, 3, size[0], size[1]]) }],
        nodes: nodes.iter().map(node).collect(),
        weights: weights.iter().map(|(name, weight)| ((*name).to_owned(), weight.clone())).collect(),
        ..Model::default()
    };
    model.infer_types().unwrap();
    model
}

fn floats(dims: &[usize]) -> Weight {
    Weight::zeros(DataType::F32, dims.to_vec()).unwrap()
}

fn integers(values: &[i64]) -> Weight {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Weight::from_bytes(DataType::I64, vec![values.len()], bytes).unwrap()
}

fn ints(values: &[i64]) -> Attribute {
    Attribute::from(values.to_vec())
}

fn reach_of(model: &Model, scale: usize) -> Result<Reach, String> {
    let port = |name| PictureAxes { name, axes: [2, 3] };
    reach(model, port("picture"), port("made"), scale).map_err(|e| e.to_string())
}

/// The radius and the period, if they are the same for two sizes.
fn found(scale: usize, nodes: &[Described<'_>], weights: &[(&str, Weight)]) -> Option<(usize, usize)> {
    let all = [[32, 48], [64, 32]].map(|size| reach_of(&model(size, nodes, weights), scale).unwrap());
    (all[0] == all[1]).then_some((all[0].radius, all[0].period))
}

#[test]
fn convolutions_add_up() {
    let same = [("pads", ints(&[1, 1, 1, 1]))];
    let wide = [("pads", ints(&[4, 4, 4, 4])), ("dilations", ints(&[2, 2]))];
    let nodes: [(&str, &[&str], &str, &[_]); 3] = [
        ("Conv", &["picture", "three"], "a", &same),
        ("Relu", &["a"], "b", &[]),
        ("Conv", &["b", "five"], "made", &wide),
    ];
    let weights = [("three", floats(&[3, 3, 3, 3])), ("five", floats(&[3, 3, 5, 5]))];
    assert_eq!(found(1, &nodes, &weights), Some((1 + 4, 1)));
}

#[test]
fn shuffled_pixels_are_those_of_their_place() {
    let nodes: [(&str, &[&str], &str, &[_]); 2] = [
        ("Conv", &["picture", "k"], "a", &[("pads", ints(&[1, 1, 1, 1]))]),
        ("DepthToSpace", &["a"], "made", &[("blocksize", Attribute::Int(4))]),
    ];
    assert_eq!(found(4, &nodes, &[("k", floats(&[48, 3, 3, 3]))]), Some((1, 1)));
    // By Reshape and Transpose, as programs without the operator write it: 2×2 of 12 channels.
    let shuffled = |sizes: [i64; 2]| {
        let [h, w] = sizes;
        let nodes: [Described<'_>; 4] = [
            ("Conv", &["picture", "k"], "a", &[("pads", ints(&[1, 1, 1, 1]))]),
            ("Reshape", &["a", "split"], "b", &[]),
            ("Transpose", &["b"], "c", &[("perm", ints(&[0, 1, 4, 2, 5, 3]))]),
            ("Reshape", &["c", "joined"], "made", &[]),
        ];
        let weights = [
            ("k", floats(&[12, 3, 3, 3])),
            ("split", integers(&[1, 3, 2, 2, h, w])),
            ("joined", integers(&[1, 3, 2 * h, 2 * w])),
        ];
        reach_of(&model([h as usize, w as usize], &nodes, &weights), 2).unwrap()
    };
    assert_eq!(shuffled([32, 48]), Reach { radius: 1, period: 1 });
    assert_eq!(shuffled([64, 32]), Reach { radius: 1, period: 1 });
}

#[test]
fn enlarged_pictures_count_in_pixels_of_the_input() {
    let scales = Weight::from_bytes(DataType::F32, vec![4], [1.0_f32, 1.0, 2.0, 2.0].map(f32::to_le_bytes).concat());
    let nearest = [("coordinate_transformation_mode", "asymmetric".into()), ("nearest_mode", "floor".into())];
    let nodes: [(&str, &[&str], &str, &[_]); 2] = [
        ("Resize", &["picture", "", "scales"], "a", &nearest),
        ("Conv", &["a", "k"], "made", &[("pads", ints(&[1, 1, 1, 1]))]),
    ];
    let weights = [("scales", scales.unwrap()), ("k", floats(&[3, 3, 3, 3]))];
    assert_eq!(found(2, &nodes, &weights), Some((1, 1)));
    let linear = [("mode", "linear".into())];
    let mut smooth = nodes;
    smooth[0].3 = &linear;
    // Row 0 reads row −1 of the enlarged picture, which lies at −¾: rows −1 and 0 of the input.
    assert_eq!(found(2, &smooth, &weights), Some((1, 1)));
}

#[test]
fn strides_have_a_period() {
    let nodes: [(&str, &[&str], &str, &[_]); 2] = [
        ("Conv", &["picture", "down"], "a", &[("pads", ints(&[1, 1, 1, 1])), ("strides", ints(&[2, 2]))]),
        ("ConvTranspose", &["a", "up"], "made", &[("strides", ints(&[2, 2]))]),
    ];
    let weights = [("down", floats(&[6, 3, 3, 3])), ("up", floats(&[6, 3, 2, 2]))];
    assert_eq!(found(1, &nodes, &weights), Some((2, 2)));
}

#[test]
fn what_sees_the_whole_picture_grows_with_it() {
    let pooled: [(&str, &[&str], &str, &[_]); 2] =
        [("GlobalAveragePool", &["picture"], "a", &[]), ("Mul", &["picture", "a"], "made", &[])];
    assert_eq!(found(1, &pooled, &[]), None);
    let normalised: [(&str, &[&str], &str, &[_]); 1] = [("InstanceNormalization", &["picture", "s", "s"], "made", &[])];
    assert_eq!(found(1, &normalised, &[("s", floats(&[3]))]), None);
    let turned: [(&str, &[&str], &str, &[_]); 1] =
        [("Slice", &["picture", "last", "end", "axis", "step"], "made", &[])];
    let weights = [
        ("last", integers(&[-1])),
        ("end", integers(&[i64::MIN])),
        ("axis", integers(&[3])),
        ("step", integers(&[-1])),
    ];
    assert_eq!(found(1, &turned, &weights), None);
}

#[test]
fn a_constant_for_each_place_is_refused() {
    let nodes: [(&str, &[&str], &str, &[_]); 1] = [("Add", &["picture", "places"], "made", &[])];
    let problem = reach_of(&model([32, 48], &nodes, &[("places", floats(&[1, 1, 32, 48]))]), 1).unwrap_err();
    assert!(problem.contains("to made") && problem.contains("each place"), "{problem}");
    assert_eq!(found(1, &nodes, &[("places", floats(&[3, 1, 1]))]), Some((0, 1)));
}

#[test]
fn windows_have_a_period_and_a_reach() {
    // 8×8 windows, whose tokens attend to each other, and back.
    let windows = |[h, w]: [i64; 2]| {
        let nodes: [Described<'_>; 5] = [
            ("Reshape", &["picture", "split"], "a", &[]),
            ("Transpose", &["a"], "b", &[("perm", ints(&[0, 1, 2, 4, 3, 5]))]),
            ("ReduceMean", &["b", "axes"], "c", &[]),
            ("Add", &["a", "c"], "d", &[]),
            ("Reshape", &["d", "joined"], "made", &[]),
        ];
        let weights = [
            ("split", integers(&[1, 3, h.div_euclid(8), 8, w.div_euclid(8), 8])),
            ("axes", integers(&[2, 3, 4, 5])),
            ("joined", integers(&[1, 3, h, w])),
        ];
        reach_of(&model([h as usize, w as usize], &nodes, &weights), 1).unwrap()
    };
    assert_ne!(windows([32, 48]), windows([64, 32]));
}
