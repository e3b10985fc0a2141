use super::*;
use proptest::prelude::*;
use std::io::Cursor;

/// A plan with these texts between other bytes.
fn plan(texts: &[&str]) -> Vec<u8> {
    let mut bytes = b"vtrt and NLYM that is no tag".to_vec();
    for text in texts {
        bytes.extend(b"NLYM\xa1\xda\x1e\x00");
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend([0; 13]);
    }
    bytes
}

fn read(texts: &[&str]) -> Result<Program> {
    Program::read(&mut Cursor::new(plan(texts)))
}

const FUSED: &str = r#"header {
  version = 4
  accelerators={*}
}
descriptors {
  tensor={ dims={ 1 8 6 5 } name="in" type=half }
  tensor={ dims={ 16 4 3 3 } name="filters" type=half }
  tensor={ dims={ 1 16 6 5 } name="conv" type=half }
  tensor={ dims={ 1 16 6 5 } name="out" type=half }
}
main {
 label bb1:
  corrltn={ name="body/Conv_U4" output={"conv" } input={"in" "filters" } layers="[ONNX Layer: body/Conv]" }
  relu={ name="body/Relu_U5" output={"out" } input={"conv" } layers="[ONNX Layer: body/Relu]" }
}
"#;

const MAIN: &str = "header {\n  version = 5\n  region = { name=devmem size=7000 place=accelerator }\n  \
    region = { name=consts size=9 constant=true }\n  accelerators={sm89 }\n}\n\
    descriptors {\n  \
    tensor={ const_payload_size=1152 dims={ 16 4 3 3 } name=\"filters\" type=half }\n  \
    tensor={ dims={ 1 8 6 5 } name=\"x\" type=half }\n  \
    tensor={ dims={ 100 } is_scratchspace=1 name=\"scratch\" type=int8 }\n  \
    tensor={ dims={ 1 16 6 5 } name=\"y\" type=half }\n  \
    sub_tensor={ base=\"y\" dims={ 30 16 } name=\"y^deref\" }\n  \
    tensor={ const_payload_size=128 dims={ 16 4 } name=\"matrix\" type=half }\n  \
    tensor={ dims={ 30 4 } name=\"z\" type=half }\n  \
    tensor={ dims={ 6 13 64 } name=\"q\" type=half }\n  tensor={ dims={ 6 64 7 } name=\"k\" type=half }\n  \
    tensor={ dims={ 6 7 32 } name=\"v\" type=half }\n  tensor={ dims={ 6 13 32 } name=\"seen\" type=half }\n  \
    tensor={ dims={ 30 4 } name=\"wide\" type=float }\n\
    }\n\
    main {\n label bb1: \n  \
    runtime_fusion={ name=__myl_CorrRelu input_args={ \"x\" \"filters\" } output_args={ \"y\" } binary=0 \
    scratchspace={\"scratch\" } layers=\"[ONNX Layer: body/Conv]\u{1f}[ONNX Layer: body/Relu]\" backbone=conv }\n  \
    fully_connected={ name=\"head/MatMul\" output={\"z\" } input={\"y^deref\" \"matrix\" } trA=false trB=false \
    layers=\"[ONNX Layer: head/MatMul]\" }\n  \
    function={ name=_gemm_mha_v2 input_args={ \"q\" \"k\" \"v\" } output_args={ \"seen\" } layers=\"\" }\n  \
    function={ name=__myl_Cast input_args={ \"z\" \"z\" } output_args={ \"wide\" } binary = 3 layers=\"\" }\n\
    }\nshape_main {\n label bb2020: \n}\n";

#[test]
fn kernels_bytes_and_products_are_those_that_are_counted_by_hand() {
    let program = read(&[MAIN, FUSED]).unwrap();
    assert_eq!((program.activation_bytes, program.weight_bytes), (7000, 1152 + 128));
    let seen: Vec<_> = program
        .operations
        .iter()
        .map(|it| (it.kind, it.kernel.as_str(), it.element.unwrap(), it.read_bytes, it.written_bytes, it.multiply_adds))
        .collect();
    let half = ElementType::Half;
    assert_eq!(
        seen,
        [
            // 16 filters of 4 channels (two groups) and 9 taps, at 30 positions.
            (OperationKind::Convolution, "CorrRelu", half, 2 * 240 + 1152, 2 * 480, Some(16 * 4 * 9 * 30)),
            (OperationKind::Product, "fully_connected", half, 2 * 480 + 128, 2 * 120, Some(30 * 16 * 4)),
            (
                OperationKind::Attention,
                "gemm_mha_v2",
                half,
                2 * 6 * (13 * 64 + 64 * 7 + 7 * 32),
                2 * 6 * 13 * 32,
                Some(6 * 13 * 7 * (64 + 32))
            ),
            (OperationKind::Pass, "Cast", half, 2 * 120, 4 * 120, Some(0)),
        ]
    );
    assert_eq!(program.operations[0].layers, ["body/Conv", "body/Relu"]);
    assert_eq!(program.moved_bytes(), program.operations.iter().map(Operation::moved_bytes).sum::<u64>());
}

#[test]
fn what_is_in_another_form_is_not_known() {
    let not_known = |texts: &[&str], word: &str| {
        let error = read(texts).unwrap_err().to_string();
        assert!(error.contains("not known") && error.contains(word), "{error}");
    };
    not_known(&[], "without one");
    not_known(&[FUSED], "in front");
    not_known(&[MAIN], "fused kernel 0");
    let changed = |from: &str, to: &str| {
        assert!(MAIN.contains(from), "{from}");
        MAIN.replace(from, to)
    };
    for (from, to, word) in [
        ("type=float", "type=fp3", "type `fp3` of the tensor `wide`"),
        ("dims={ 30 4 } name=\"z\"", "dims={ 30 -4 } name=\"z\"", "sizes of the tensor `z`"),
        ("dims={ 30 4 } name=\"z\"", "dims={ 4294967296 4294967296 } name=\"z\"", "sizes of the tensor `z`"),
        ("name=\"wide\" type", "name=\"z\" type", "second description of the tensor `z`"),
        ("base=\"y\"", "base=\"later\"", "what is shown"),
        ("input_args={ \"z\" ", "input_args={ \"w\" ", "`w`"),
        ("size=7000", "size=many", "memory for activations"),
        ("descriptors {", "something {", "`descriptors`"),
        ("tensor={ dims={ 1 8", "stranger={ dims={ 1 8", "`stranger` among tensors"),
        ("layers=\"\" }\n}\nshape", "layers=\" }\n}\nshape", "does not end"),
    ] {
        not_known(&[&changed(from, to), FUSED], word);
    }
    // Products of another form count as unknown, and the rest is as before.
    let program = read(&[&changed("dims={ 16 4 } name=\"matrix\"", "dims={ 17 4 } name=\"matrix\""), FUSED]).unwrap();
    assert_eq!(program.operations[1].multiply_adds, None);
    // A text that is cut off.
    let mut bytes = plan(&[MAIN, FUSED]);
    bytes.truncate(bytes.len() - 20);
    let error = Program::read(&mut Cursor::new(bytes)).unwrap_err().to_string();
    assert!(error.contains("are there"), "{error}");
    // A length that no memory holds.
    let mut bytes = plan(&[MAIN]);
    let at = bytes.windows(8).position(|found| found == b"NLYM\xa1\xda\x1e\x00").unwrap();
    bytes[at + 8..at + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    let error = Program::read(&mut Cursor::new(bytes)).unwrap_err().to_string();
    assert!(error.contains("18446744073709551615 bytes"), "{error}");
}

#[test]
fn a_text_is_found_wherever_it_stands() {
    for offset in (0..40).chain((1 << 20) - 60..(1 << 20) + 8) {
        let mut bytes = vec![b'N'; offset];
        bytes.extend(plan(&[MAIN, FUSED]));
        assert_eq!(Program::read(&mut Cursor::new(bytes)).unwrap(), read(&[MAIN, FUSED]).unwrap(), "{offset}");
    }
}

proptest! {
    /// Any text is read or refused.
    #[test]
    fn nothing_panics(position in 0..MAIN.len(), length in 0..40_usize, with in ".{0,20}") {
        let mut text = MAIN.as_bytes().to_vec();
        let end = (position + length).min(text.len());
        text.splice(position..end, with.bytes());
        let _ = read(&[&String::from_utf8_lossy(&text), FUSED]);
        let _ = read(&[MAIN, &String::from_utf8_lossy(&text)]);
    }
}
