//! Tests that unsound programs do not compile, nor one that ignores a completion. Each file of
//! `tests/compile_fail` is such a program. A second file has the error message of the compiler.

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
