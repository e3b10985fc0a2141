//! Contracts in their JSON form, and tensors that are checked against them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tileforge_contract::*;

fn upscale() -> Upscale {
    Upscale {
        input: "image".into(),
        output: "upscaled".into(),
        scale: 4,
        channels: 3,
        range: [0.0, 1.0],
        size_multiple: 2,
        size_minimum: 16,
        only_size: None,
        padding: Padding::Reflect,
        receptive_field: ReceptiveField::Radius(18),
        safe_precisions: vec![Precision::Fp32, Precision::Fp16],
    }
}

/// A video decoder's next chunk: latents and a cache in, pixels and a cache out.
fn chunk() -> Contract {
    let (latent, pixel) = (Extent::multiple_of(1), Extent::multiple_of(8));
    let cache = [Axis::Batch, Axis::Fixed(2), Axis::Channels(16), Axis::Height(latent), Axis::Width(latent)];
    let frames = Extent::multiple_of(4);
    Contract {
        task: Task::VaeDecoder,
        inputs: vec![
            TensorSpec::new(
                "latent_sample",
                [Axis::Batch, Axis::Channels(16), Axis::Frames(latent), Axis::Height(latent), Axis::Width(latent)],
                Meaning::Latent { scaling: 0.9152, shift: 0.0 },
            ),
            TensorSpec::new("cache.conv_in", cache, Meaning::Carried { from: "next_cache.conv_in".into() }),
        ],
        outputs: vec![
            TensorSpec::new(
                "sample",
                [Axis::Batch, Axis::Channels(3), Axis::Frames(frames), Axis::Height(pixel), Axis::Width(pixel)],
                Meaning::Pixels { range: [-1.0, 1.0], normalisation: None, order: ChannelOrder::Rgb, padding: None },
            ),
            TensorSpec::new("next_cache.conv_in", cache, Meaning::Cache),
        ],
        receptive_field: ReceptiveField::Unbounded,
        safe_precisions: vec![Precision::Fp32],
    }
}

fn shapes(shapes: &[(&str, &[usize])]) -> Shapes {
    shapes.iter().map(|(name, shape)| ((*name).to_owned(), shape.to_vec())).collect()
}

#[test]
fn a_contract_survives_its_json() {
    for contract in [upscale().contract(), chunk()] {
        let text = contract.to_json().unwrap();
        assert_eq!(Contract::from_json(&text).unwrap(), contract);
        let metadata = BTreeMap::from([(CONTRACT_KEY.to_owned(), text)]);
        assert_eq!(Contract::from_metadata(&metadata).unwrap(), contract);
    }
    assert_eq!(Contract::from_metadata(&BTreeMap::new()), Err(Error::Missing { key: CONTRACT_KEY }));
}

/// Existing graphs and manifests contain this text.
#[test]
fn the_json_of_axes_is_a_fixed_format() {
    let axes = [
        Axis::Batch,
        Axis::Height(Extent::multiple_of(8).at_least(16)),
        Axis::Frames(Extent::multiple_of(4).plus(-3)),
        Axis::Width(Extent::multiple_of(1)),
        Axis::Tokens(Some(77)),
        Axis::Tokens(None),
    ];
    let expected = serde_json::json!([
        "batch",
        { "height": { "step": 8, "minimum": 2 } },
        { "frames": { "step": 4, "offset": -3 } },
        { "width": { "step": 1 } },
        { "tokens": 77 },
        { "tokens": null },
    ]);
    assert_eq!(serde_json::to_value(axes).unwrap(), expected);
    assert_eq!(serde_json::from_value::<[Axis; 6]>(expected).unwrap(), axes);
}

#[test]
fn an_extent_says_which_lengths_it_has() {
    let clip = Extent::multiple_of(4).plus(-3);
    let texts = [
        (Extent::multiple_of(1), "any length"),
        (Extent::multiple_of(8), "a multiple of 8"),
        (Extent::multiple_of(2).at_least(16), "a multiple of 2 from 16 on"),
        (clip, "4 · n − 3"),
        (clip.plus(1), "4 · n + 1"),
        (Extent::multiple_of(1).plus(-1), "1 · n − 1"),
    ];
    for (extent, text) in texts {
        assert_eq!(extent.to_string(), text);
    }
    assert_eq!(clip.times(2), Extent::multiple_of(8).plus(-6));
    assert_eq!([1, 2, 5, 6].map(|length| clip.size(length)), [Some(1), None, Some(2), None]);
    assert_eq!([1, 2, 5, 6].map(|length| clip.size_for(length)), [1, 2, 2, 3]);
    assert_eq!((clip.least(), clip.length(0)), (1, None));
}

#[test]
fn a_tensor_tells_each_of_its_axes() {
    let (latent, frames) = (Extent::multiple_of(2), Extent::multiple_of(4).plus(-3));
    let axes = [Axis::Channels(16), Axis::Frames(frames), Axis::Height(latent), Axis::Width(latent.plus(1))];
    let tensor = TensorSpec::new("x", axes, Meaning::Cache);
    assert_eq!(tensor.channels(), Some(16));
    assert_eq!((tensor.frames(), tensor.height(), tensor.width()), (Some(frames), Some(latent), Some(latent.plus(1))));
    assert_eq!(tensor.most_tokens(), None);
    let tokens = |most| TensorSpec::new("ids", [Axis::Batch, Axis::Tokens(most)], Meaning::Cache);
    assert_eq!((tokens(Some(77)).most_tokens(), tokens(None).most_tokens()), (Some(77), None));
    assert_eq!((tokens(None).channels(), tokens(None).height()), (None, None));
    assert_eq!((tokens(None).width(), tokens(None).frames()), (None, None));
}

#[test]
fn a_text_has_at_least_one_token_and_at_most_its_limit() {
    let mut contract = chunk();
    contract.inputs.push(TensorSpec::new("ids", [Axis::Batch, Axis::Tokens(Some(77))], Meaning::Cache));
    let sizes = |tokens: usize| {
        let clip: (&str, &[usize]) = ("latent_sample", &[1, 16, 1, 8, 8]);
        contract.sizes(&shapes(&[clip, ("cache.conv_in", &[1, 2, 16, 8, 8]), ("ids", &[1, tokens])]))
    };
    assert_eq!([1, 77].map(|tokens| sizes(tokens).unwrap().tokens), [1, 77]);
    assert!([0, 78].iter().all(|tokens| sizes(*tokens).is_err()));
    let shapes = |tokens: usize| contract.input_shapes(&Sizes { tokens, ..Sizes::default() });
    assert!(shapes(77).is_ok() && shapes(0).is_err() && shapes(78).is_err());
    let empty = contract.sizes(&[("latent_sample".to_owned(), vec![0, 16, 1, 8, 8])].into());
    assert!(empty.unwrap_err().to_string().contains("`latent_sample`"));
}

#[test]
fn an_upscaler_is_read_back_from_its_contract() {
    assert_eq!(Upscale::of(&upscale().contract()).unwrap(), upscale());
    assert_eq!(Upscale::of(&chunk()), Err(Error::Task { expected: Task::Upscale, found: Task::VaeDecoder }));
    let broken: [fn(&mut Contract); 9] = [
        |contract| contract.outputs = Upscale { scale: 65, ..upscale() }.contract().outputs,
        |contract| {
            let odd = Extent::multiple_of(2).plus(1);
            contract.inputs[0].axes[2] = Axis::Height(odd);
            contract.inputs[0].axes[3] = Axis::Width(odd);
        },
        |contract| {
            let none = Extent { step: 0, offset: 0, minimum: 1, maximum: None };
            contract.inputs[0].axes[2] = Axis::Height(none);
            contract.inputs[0].axes[3] = Axis::Width(none);
        },
        |contract| drop(contract.outputs.pop()),
        |contract| contract.outputs[0].axes[2] = Axis::Height(Extent::multiple_of(3)),
        |contract| contract.outputs[0].axes[1] = Axis::Channels(1),
        |contract| contract.inputs[0].axes[3] = Axis::Width(Extent::multiple_of(4)),
        |contract| contract.inputs[0].meaning = Meaning::Prediction,
        |contract| {
            contract.inputs[0].axes.remove(0);
        },
    ];
    for (number, change) in broken.into_iter().enumerate() {
        let mut contract = upscale().contract();
        change(&mut contract);
        assert!(matches!(contract.validate(), Err(Error::Rule { .. })), "change {number}");
        assert!(matches!(Upscale::of(&contract), Err(Error::Rule { .. })), "change {number}");
    }
}

#[test]
fn shapes_give_sizes_and_sizes_give_shapes() {
    let contract = chunk();
    let inputs = shapes(&[("latent_sample", &[2, 16, 3, 32, 48]), ("cache.conv_in", &[2, 2, 16, 32, 48])]);
    let sizes = contract.sizes(&inputs).unwrap();
    assert_eq!(sizes, Sizes { batch: 2, height: 32, width: 48, frames: 3, tokens: 1 });
    assert_eq!(contract.input_shapes(&sizes).unwrap(), inputs);
    let outputs = contract.output_shapes(&sizes).unwrap();
    assert_eq!(outputs["sample"], [2, 3, 12, 256, 384]);
    assert_eq!(contract.check(&inputs, &outputs), Ok(sizes));

    type Given<'a> = &'a [(&'a str, &'a [usize])];
    let cases: [(Given, &str); 5] = [
        (&[("latent_sample", &[2, 16, 3, 32, 48])], "`cache.conv_in`: expected an input, found none"),
        (&[("latent_sample", &[2, 16, 3, 32]), ("cache.conv_in", &[2, 2, 16, 32, 48])], "found [2, 16, 3, 32]"),
        (&[("latent_sample", &[2, 15, 3, 32, 48]), ("cache.conv_in", &[2, 2, 16, 32, 48])], "16 channels"),
        (
            &[("latent_sample", &[2, 16, 3, 32, 48]), ("cache.conv_in", &[2, 2, 16, 32, 40])],
            "width as in `latent_sample`",
        ),
        (
            &[("latent_sample", &[2, 16, 3, 32, 48]), ("cache.conv_in", &[2, 2, 16, 32, 48]), ("more", &[1])],
            "`more`: expected no such input",
        ),
    ];
    for (given, expected) in cases {
        let error = contract.sizes(&shapes(given)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let mut wrong = outputs.clone();
    wrong.insert("sample".into(), vec![2, 3, 12, 256, 385]);
    assert!(contract.check(&inputs, &wrong).unwrap_err().to_string().contains("385"));
    wrong = outputs.clone();
    wrong.insert("more".into(), vec![1]);
    assert!(contract.check(&inputs, &wrong).unwrap_err().to_string().contains("`more`: expected no such output"));
    wrong = outputs;
    wrong.remove("sample");
    assert!(contract.check(&inputs, &wrong).unwrap_err().to_string().contains("found no such output"));
}

#[test]
fn a_size_below_the_least_is_refused() {
    let contract = upscale().contract();
    let sizes = |side: usize| contract.sizes(&shapes(&[("image", &[1, 3, side, side])]));
    assert_eq!(sizes(16).unwrap().height, 8);
    for side in [0, 14, 17] {
        let error = sizes(side).unwrap_err().to_string();
        assert!(error.contains("a multiple of 2 from 16 on"), "{error}");
    }
    assert!(contract.input_shapes(&Sizes { height: 7, width: 8, ..Sizes::default() }).is_err());
    assert!(contract.input_shapes(&Sizes { batch: 0, height: 8, width: 8, ..Sizes::default() }).is_err());
}

#[test]
fn carried_tensors_name_their_output() {
    let contract = chunk();
    let carried: Vec<_> =
        contract.carried().map(|(input, output)| (input.name.as_str(), output.name.as_str())).collect();
    assert_eq!(carried, [("cache.conv_in", "next_cache.conv_in")]);
    let mut other = chunk();
    other.outputs.pop();
    assert!(other.validate().unwrap_err().to_string().contains("an output `next_cache.conv_in`"));
    let mut other = chunk();
    other.inputs[1].axes[1] = Axis::Fixed(1);
    assert!(other.validate().unwrap_err().to_string().contains("the axes of `next_cache.conv_in`"));
}

#[test]
fn each_broken_rule_is_named() {
    let tensor = |axes: &[Axis], meaning: Meaning| TensorSpec::new("x", axes, meaning);
    let [grey, rgb] = [1, 3].map(|channels| [Axis::Batch, Axis::Channels(channels)]);
    let pixels = |range, order, normalisation| Meaning::Pixels { range, normalisation, order, padding: None };
    let zero = Normalisation { mean: [0.0; 3], deviation: [1.0, 0.0, 1.0] };
    let cases = [
        (tensor(&grey, pixels([0.0, 1.0], ChannelOrder::Rgb, None)), "3 channels (rgb)"),
        (tensor(&rgb, pixels([0.0, 1.0], ChannelOrder::Grey, None)), "1 channels (grey)"),
        (tensor(&rgb, pixels([1.0, 1.0], ChannelOrder::Rgb, None)), "ascending order"),
        (tensor(&rgb, pixels([-3e38, 3e38], ChannelOrder::Bgr, None)), "ascending order"),
        (tensor(&rgb, pixels([0.0, f32::NAN], ChannelOrder::Rgb, None)), "ascending order"),
        (tensor(&rgb, pixels([0.0, 1.0], ChannelOrder::Rgb, Some(zero))), "deviations above 0"),
        (tensor(&grey, pixels([0.0, 1.0], ChannelOrder::Grey, Some(Normalisation::IMAGENET))), "no normalisation"),
        (tensor(&[], Meaning::Timestep { range: [1.0, 0.0] }), "ascending order"),
        (tensor(&[Axis::Batch], Meaning::Guidance { range: [1.0, 1.0] }), "ascending order"),
        (tensor(&[Axis::Batch], Meaning::TextMask), "[batch, tokens] (a mask of a text)"),
        (tensor(&[Axis::Batch, Axis::Tokens(None)], Meaning::TextLength), "[batch] (the length of a text)"),
        (tensor(&[Axis::Batch], Meaning::TextLength).of_type(DataType::F16), "elements of f32"),
        (tensor(&rgb, Meaning::Latent { scaling: 0.0, shift: 0.0 }), "a scaling that is not 0"),
        (tensor(&rgb, Meaning::Latent { scaling: 1.0, shift: f32::INFINITY }), "a number"),
        (tensor(&rgb, Meaning::LatentDistribution { scaling: 1.0, shift: 0.0 }), "an even number"),
        (tensor(&rgb, Meaning::NoisyLatent { latent: 4, condition: 0, mask: 1, masked_image: 4 }), "Some(9) channels"),
        (tensor(&rgb, Meaning::Tokens { vocabulary: 9 }), "elements of i64"),
        (tensor(&rgb, Meaning::Tokens { vocabulary: 0 }).of_type(DataType::I64), "at least one token"),
        (tensor(&rgb, Meaning::Prediction).of_type(DataType::F16), "elements of f32"),
        (tensor(&rgb, Meaning::Depth { unit: DepthUnit::InverseMetres, missing: Some(f32::NAN) }), "a number"),
        (tensor(&[Axis::Fixed(0)], Meaning::Cache), "an axis of 1 to"),
        (tensor(&[Axis::Height(Extent::multiple_of(0))], Meaning::Cache), "an axis of 1 to"),
        (tensor(&[Axis::Frames(Extent::multiple_of(2).plus(-2))], Meaning::Cache), "an axis of at least 1"),
        (tensor(&[Axis::Batch; 9], Meaning::Cache), "at most 8 axes"),
        (TensorSpec::new("a\u{1b}[2J", [], Meaning::Cache), "printable"),
        (TensorSpec::new("", [], Meaning::Cache), "printable"),
    ];
    for (tensor, expected) in cases {
        let contract = Contract { inputs: vec![tensor], ..chunk() };
        let error = contract.validate().unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("inputs"), "{expected}: {error}");
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
    let twice = Contract { outputs: [chunk().outputs, chunk().outputs].concat(), ..chunk() };
    assert!(twice.validate().unwrap_err().to_string().contains("names that differ"));
    let far = Contract { receptive_field: ReceptiveField::Radius(1 << 15), ..upscale().contract() };
    assert!(far.validate().unwrap_err().to_string().contains("receptive_field"));
    assert!(Contract { inputs: Vec::new(), ..chunk() }.validate().is_err());
    let json = chunk().to_json().unwrap();
    let padded = |bytes: usize| Contract::from_json(&(json.clone() + &" ".repeat(bytes - json.len())));
    assert!(padded(1 << 20).is_ok());
    assert!(padded((1 << 20) + 1).unwrap_err().to_string().contains("at most"));
}

#[test]
fn each_meaning_is_sound_within_its_rule() {
    let tensor = |channels: usize, meaning: Meaning| {
        TensorSpec::new("x", [Axis::Batch, Axis::Channels(channels), Axis::Fixed(1 << 20)], meaning)
    };
    let pixels = |order, normalisation| Meaning::Pixels { range: [-1.0, 1.0], normalisation, order, padding: None };
    let sound = [
        tensor(3, pixels(ChannelOrder::Rgb, Some(Normalisation::IMAGENET))),
        tensor(3, pixels(ChannelOrder::Bgr, None)),
        tensor(1, pixels(ChannelOrder::Grey, None)),
        tensor(4, Meaning::Latent { scaling: -0.5, shift: 0.1 }),
        tensor(8, Meaning::LatentDistribution { scaling: 0.13025, shift: 0.0 }),
        tensor(9, Meaning::NoisyLatent { latent: 4, condition: 0, mask: 1, masked_image: 4 }),
        tensor(1, Meaning::Timestep { range: [0.0, 999.0] }),
        tensor(1, Meaning::Guidance { range: [1.0, 15.0] }),
        tensor(320, Meaning::Residual),
        TensorSpec::new("x", [Axis::Batch, Axis::Tokens(Some(77))], Meaning::TextMask),
        TensorSpec::new("x", [Axis::Batch, Axis::Tokens(None)], Meaning::TextMask).of_type(DataType::I64),
        TensorSpec::new("x", [Axis::Batch], Meaning::TextLength),
        TensorSpec::new("x", [Axis::Batch], Meaning::TextLength).of_type(DataType::I64),
        tensor(1, Meaning::Tokens { vocabulary: 1 }).of_type(DataType::I64),
        tensor(1, Meaning::Depth { unit: DepthUnit::InverseMetres, missing: Some(0.0) }),
    ];
    for tensor in sound {
        let meaning = format!("{:?}", tensor.meaning);
        let contract = Contract { inputs: vec![tensor], ..chunk() };
        assert_eq!(contract.validate().err().map(|error| error.to_string()), None, "{meaning}");
    }
}

proptest! {
    #[test]
    fn no_change_of_a_byte_makes_it_panic(position: prop::sample::Index, byte: u8) {
        let mut bytes = chunk().to_json().unwrap().into_bytes();
        let position = position.index(bytes.len());
        bytes[position] = byte;
        if let Ok(contract) = Contract::from_json(&String::from_utf8_lossy(&bytes)) {
            let _ = contract.sizes(&contract.input_shapes(&Sizes::default()).unwrap_or_default());
        }
    }
}
