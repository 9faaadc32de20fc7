//! What safe code cannot write. Each file of `tests/compile_fail` is a program that must not
//! compile, and beside it stands why.

#[test]
fn unsound_programs_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
