//! Tests the text of `--help`, which users read and copy into scripts.

#[test]
fn the_help_of_every_command() {
    insta::assert_snapshot!(tileforge_terminal::testing::help(env!("CARGO_BIN_EXE_exporter")));
}
