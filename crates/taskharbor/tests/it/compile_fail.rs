//! What rustc says about programs that do not compile is part of the interface: it has to name the
//! mistake and the way out. The cases are in `tests/ui`, each beside the message it is met with.
//!
//! After a change, `TRYBUILD=overwrite cargo test -p taskharbor --all-features --test it compile_fail`
//! writes the messages anew; read them before committing them.

#[test]
fn rustc_says_what_is_wrong() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
