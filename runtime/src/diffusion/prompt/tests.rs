//! Texts with weights, as AUTOMATIC1111 reads them, and malicious texts.

use proptest::prelude::*;

use super::{Error, MOST_WEIGHT, Part, literal, parse};

fn parts(text: &str) -> Vec<(String, f64)> {
    parse(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
        .into_iter()
        .map(|part| (part.text, part.weight))
        .collect()
}

/// The examples of its own documentation, and what its code gives for odd texts.
#[test]
fn weights_are_those_of_automatic1111() {
    let cases: &[(&str, &[(&str, f64)])] = &[
        ("", &[("", 1.0)]),
        ("()", &[("", 1.0)]),
        ("normal text", &[("normal text", 1.0)]),
        ("an (important) word", &[("an ", 1.0), ("important", 1.1), (" word", 1.0)]),
        ("(unbalanced", &[("unbalanced", 1.1)]),
        ("unbalanced)]", &[("unbalanced)]", 1.0)]),
        (r"\(literal\]", &[("(literal]", 1.0)]),
        (r"a \\(b\\)", &[(r"a \", 1.0), (r"b\", 1.1)]),
        ("(unnecessary)(parens)", &[("unnecessaryparens", 1.1)]),
        (
            "a (((house:1.3)) [on] a (hill:0.5), sun, (((sky))).",
            &[
                ("a ", 1.0),
                ("house", 1.573),
                (" ", 1.1),
                ("on", 1.0),
                (" a ", 1.1),
                ("hill", 0.55),
                (", sun, ", 1.1),
                ("sky", 1.4641),
                (".", 1.1),
            ],
        ),
        ("((red)) fox", &[("red", 1.21), (" fox", 1.0)]),
        ("[red] fox", &[("red", 1.0 / 1.1), (" fox", 1.0)]),
        ("[[red", &[("red", 1.0 / 1.21)]),
        ("(red: +1.4 )", &[("red", 1.4)]),
        ("(red:-.5)", &[("red", -0.5)]),
        ("(red:0)", &[("red", 0.0)]),
        // A number without a bracket, and a weight that is not a number, are text.
        ("red:1.4)", &[("red:1.4)", 1.0)]),
        ("(red:nan)", &[("red:nan", 1.1)]),
        ("(red:1e9)", &[("red:1e9", 1.1)]),
        ("(red:inf) a: b", &[("red:inf", 1.1), (" a: b", 1.0)]),
        ("(a:b:1.2)", &[("a:b", 1.2)]),
        ("[a:b]", &[("a:b", 1.0 / 1.1)]),
        ("(a [b) c]", &[("a ", 1.1), ("b", 1.0), (" c", 1.0 / 1.1)]),
        ("(日本:1.2)🦊(é", &[("日本", 1.2), ("🦊", 1.0), ("é", 1.1)]),
    ];
    for (text, expected) in cases {
        let found = parts(text);
        assert_eq!(found.len(), expected.len(), "{text}: {found:?}");
        for ((found, weight), (expected, wanted)) in found.iter().zip(*expected) {
            assert_eq!(found, expected, "{text}");
            assert!((weight - wanted).abs() < 1e-9, "{text}: {weight} instead of {wanted}");
        }
    }
}

#[test]
fn a_lone_backslash_stands_for_itself() {
    for text in [r"C:\red\fox", r"a\", r"\"] {
        assert_eq!(parse(text).unwrap(), literal(text));
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    for text in ["a [red:blue:0.5] fox", "a [red::0.5]", "[red:10]", "[red|blue]", "[a (b|c)]"] {
        assert!(refused(text).contains("changes between the steps"), "{text}");
    }
    for text in ["a fox <lora:snow:0.8>", "<LoRA:x>", "<lyco:a:1>", "(<hypernet:b:1>:1.2)"] {
        assert!(refused(text).contains("names weights that are not in the engine"), "{text}");
    }
    assert!(refused("a <lora:snow:0.8> fox").starts_with("\"<lora:snow:0.8>\" names"));
    for text in ["(red:1.2.3)", "(red:.)", "(red:+)", "(red:1000)", "(red:-101)", "((red:90):2)"] {
        let found = parse(text);
        // A sign alone is no weight in the other program either.
        assert!(matches!(found, Err(Error::Weight { .. })) || text == "(red:+)", "{text}: {found:?}");
    }
    assert!(refused(&format!("(red:1{})", "0".repeat(400))).contains("no number from −100 to 100"));
    // Text that only looks like a tag or a schedule stays text.
    for text in ["a < b", "<lora", "<lora:x", "<loras:x>", "<b>bold</b>", "red|blue", "to: 0.5"] {
        assert_eq!(parse(text).unwrap(), literal(text));
    }
}

#[test]
fn brackets_without_end_are_refused_at_once() {
    for (open, many) in [("(", 65), ("[", 65), ("(", 1 << 18), ("a(", 1 << 17), ("[(", 1 << 17)] {
        assert!(matches!(parse(&open.repeat(many)), Err(Error::Depth { .. })), "{open} {many} times");
    }
    assert!(matches!(parse(&format!("{}red", "(".repeat(60))), Err(Error::Weight { .. })));
    // The two kinds of brackets cancel each other.
    let both = format!("{}red{}", "([".repeat(60), "])".repeat(60));
    assert!((parts(&both)[0].1 - 1.0).abs() < 1e-9);
    // Many pairs beside each other are no problem, and neither are many that are not open.
    assert_eq!(parse(&"(a:1.2)".repeat(30_000)).unwrap(), [Part { text: "a".repeat(30_000), weight: 1.2 }]);
    for text in [")".repeat(1 << 18), "]".repeat(1 << 18), ":".repeat(1 << 18), "\\".repeat((1 << 18) + 1)] {
        assert_eq!(parse(&text).unwrap().len(), 1);
    }
    let colons = format!("({}", ": 1".repeat(80_000));
    assert_eq!(parse(&colons).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn any_text_has_parts_or_an_error(text in r"[()\[\]\\:|<> .0-9a-c+é🦊-]{0,60}") {
        let Ok(parts) = parse(&text) else { return Ok(()) };
        prop_assert!(!parts.is_empty());
        for part in &parts {
            prop_assert!(part.weight.abs() <= MOST_WEIGHT);
        }
        // Nothing is added, and letters outside of weights stay in their order.
        let kept: String = parts.iter().map(|part| part.text.as_str()).collect();
        prop_assert!(kept.len() <= text.len());
        let letters = |text: &str| text.chars().filter(|letter| letter.is_alphabetic()).collect::<String>();
        prop_assert_eq!(letters(&kept), letters(&text));
        prop_assert!(parts.windows(2).all(|pair| pair[0].weight != pair[1].weight));
    }

    #[test]
    fn a_text_without_brackets_stays_as_it_is(text in r"[^()\[\]\\<]{0,80}") {
        prop_assert_eq!(parse(&text).unwrap(), literal(&text));
    }

    #[test]
    fn escapes_give_any_text(text in r"[()\[\]\\a :1.]{0,40}") {
        let escaped: String = text
            .chars()
            .flat_map(|letter| if "()[]\\".contains(letter) { vec!['\\', letter] } else { vec![letter] })
            .collect();
        prop_assert_eq!(parse(&escaped).unwrap(), literal(&text));
    }
}
